# SPDX-License-Identifier: MIT
"""A certificate for this machine's loopback addresses, made for one run: so that encrypted transports can be driven."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

SERVER_NAME = "localhost"
VALID = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """Files in DER; who trusts the certificate trusts the server."""

    certificate: Path
    key: Path

    @property
    def der(self) -> bytes:
        return self.certificate.read_bytes()


def self_signed(folder: Path) -> SelfSigned:
    """Write server.der and server-key.der (PKCS#8, for its owner only) into `folder`. Raises OSError."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SERVER_NAME)])
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME), *addresses]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    made = SelfSigned(folder / "server.der", folder / "server-key.der")
    made.certificate.write_bytes(certificate.public_bytes(Encoding.DER))
    made.key.touch(mode=0o600)
    made.key.write_bytes(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    return made
