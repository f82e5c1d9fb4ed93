# SPDX-License-Identifier: MIT
"""Certificates for tests, made on the spot: an authority, what it issues, and every way to be wrong."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """One certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_bytes(
        self,
        encoding: Encoding = Encoding.PEM,
        form: PrivateFormat = PrivateFormat.PKCS8,
        password: bytes | None = None,
    ) -> bytes:
        protection = NoEncryption() if password is None else BestAvailableEncryption(password)
        return self.key.private_bytes(encoding, form, protection)

    def save(self, folder: Path, name: str, *chain: Certificate) -> tuple[Path, Path]:
        """NAME.pem with the chain behind it, and NAME.key."""
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        certificate.write_bytes(self.pem + b"".join(issuer.pem for issuer in chain))
        key.write_bytes(self.key_bytes())
        return certificate, key


def make(
    name: str,
    issuer: Certificate | None = None,
    *,
    is_authority: bool = False,
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
    valid: tuple[timedelta, timedelta] = (-DAY, 30 * DAY),
) -> Certificate:
    """A certificate; without issuer it signs itself. `valid`: from when to when, from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + valid[0])
        .not_valid_after(now + valid[1])
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    )
    return Certificate(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@cache
def authority() -> Certificate:
    return make("test authority", is_authority=True)


@cache
def intermediate() -> Certificate:
    return make("test intermediate", authority(), is_authority=True)


@cache
def server() -> Certificate:
    """For localhost and 127.0.0.1, issued by intermediate()."""
    return make("localhost", intermediate())


@cache
def client() -> Certificate:
    return make("test client", authority(), hosts=("client.test",))
