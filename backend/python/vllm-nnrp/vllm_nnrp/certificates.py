# SPDX-License-Identifier: MIT
"""The server's certificate, its key and the authority of client certificates: read, checked, loaded, renewed.

Everything that is wrong with the files is said before a listener opens: OpenSSL itself would say less, or would say it
to each client. Files may be PEM or DER; a PEM file holds the certificate first and then its chain.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
)

log = logging.getLogger(__name__)

_PEM = b"-----BEGIN "
_PEM_KEY = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


class CertificateError(ValueError):
    """A file cannot be used; `str()` is one line that names it and says why."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where they are. `client_ca`: clients must show a certificate of an authority in it."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class Certificates:
    """What listeners show and ask for. Raises CertificateError if a file cannot be used now."""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._loaded = _load(files)

    @property
    def asks_clients(self) -> bool:
        """Whether clients must show a certificate, too."""
        return self._files.client_ca is not None

    def context(self) -> ssl.SSLContext:
        """For the next TLS connection."""
        return self._loaded.context

    def identity(self) -> tuple[list[x509.Certificate], PrivateKeyTypes]:
        """For the next QUIC connection: the certificate with its chain, and its key."""
        return self._loaded.chain, self._loaded.key

    def reload(self) -> None:
        """Read the files again. What they hold is used from the next connection on; wrong files change nothing."""
        try:
            self._loaded = _load(self._files)
        except CertificateError as exc:
            log.error("the certificate stays as it is: %s", exc)
        else:
            log.info("the certificate was read again")


@dataclass(frozen=True, slots=True)
class _Loaded:
    chain: list[x509.Certificate]
    key: PrivateKeyTypes
    context: ssl.SSLContext


def _load(files: CertificateFiles) -> _Loaded:
    now = datetime.now(UTC)
    chain = _read_chain(files.certificate, now)
    key = _read_key(files.key)
    if _public(chain[0].public_key()) != _public(key.public_key()):
        raise CertificateError(f"{files.key} is not the key of the certificate in {files.certificate}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    pem = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)
    pem += key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with _in_memory(pem) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as exc:
            raise CertificateError(f"{files.certificate} is refused by OpenSSL: {_reason(exc)}") from exc
    if files.client_ca is not None:
        _require_clients_of(context, files.client_ca, now)
    return _Loaded(chain, key, context)


def _require_clients_of(context: ssl.SSLContext, file: Path, now: datetime) -> None:
    authorities = read_certificates(file)
    for authority in authorities:
        _check_dates(authority, file, now)
    pem = "".join(authority.public_bytes(Encoding.PEM).decode("ascii") for authority in authorities)
    context.load_verify_locations(cadata=pem)
    context.verify_mode = ssl.CERT_REQUIRED


def _read_chain(file: Path, now: datetime) -> list[x509.Certificate]:
    """The certificate, then each one's issuer."""
    chain = read_certificates(file)
    for certificate in chain:
        _check_dates(certificate, file, now)
    for number, (certificate, issuer) in enumerate(pairwise(chain), start=2):
        try:
            certificate.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature) as exc:
            text = f"{file}: certificate {number} did not issue the one before it; the server's comes first"
            raise CertificateError(text) from exc
    return chain


def read_certificates(file: Path) -> list[x509.Certificate]:
    """All of a file. Raises CertificateError."""
    data = _read(file)
    try:
        return x509.load_pem_x509_certificates(data) if _PEM in data else [x509.load_der_x509_certificate(data)]
    except ValueError as exc:
        raise CertificateError(f"{file} holds no certificate, or a damaged one (PEM or DER is expected)") from exc


def _check_dates(certificate: x509.Certificate, file: Path, now: datetime) -> None:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > last:
        raise CertificateError(f"{file}: {_name(certificate)} expired on {last:%Y-%m-%d}")
    if now < first:
        raise CertificateError(f"{file}: {_name(certificate)} is not valid before {first:%Y-%m-%d}")


def _read_key(file: Path) -> PrivateKeyTypes:
    data = _read(file)
    pem = _PEM_KEY.search(data)  # other things may be in the same file
    if pem is None and _PEM in data:
        raise CertificateError(f"{file} holds no private key")
    try:
        return load_pem_private_key(pem[0], None) if pem else load_der_private_key(data, None)
    except TypeError as exc:  # a password would be needed
        raise CertificateError(f"{file}: the key is encrypted; a server needs it without a password") from exc
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise CertificateError(f"{file} holds no private key, or a damaged one (PEM or DER is expected)") from exc


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as exc:
        raise CertificateError(f"{file} cannot be read: {exc.strerror}") from exc


def _public(key: object) -> bytes:
    data: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return data


def _name(certificate: x509.Certificate) -> str:
    return f"the certificate of {certificate.subject.rfc4514_string() or 'nobody'}"


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """A path that OpenSSL can read `data` from; a key must not be written to a disk for that."""
    descriptor = os.memfd_create("certificate")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
