# SPDX-License-Identifier: MIT
"""Certificate files: every form that is taken, and every wrong one by its name and reason."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat

from tests.support.certificates import DAY, Certificate, authority, client, intermediate, make, server
from vllm_nnrp.certificates import CertificateError, CertificateFiles, Certificates

PEM, DER = Encoding.PEM, Encoding.DER
PKCS8, OWN_FORM = PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL


def shown_chain(context: ssl.SSLContext) -> bytes:
    """The certificate a client that trusts our authority gets to see; raises SSLError if it does not trust it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    served = context.wrap_bio(to_server, to_client, server_side=True)
    trusting = ssl.create_default_context(cadata=authority().pem.decode())
    asking = trusting.wrap_bio(to_client, to_server, server_hostname="localhost")
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (asking, served):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    shown = asking.getpeercert(binary_form=True)
    assert shown is not None
    return shown


Save = Callable[[Path], CertificateFiles]


def files(folder: Path, certificate: bytes, key: bytes | None = None) -> CertificateFiles:
    (folder / "cert").write_bytes(certificate)
    (folder / "key").write_bytes(server().key_bytes() if key is None else key)
    return CertificateFiles(folder / "cert", folder / "key")


FULL = server().pem + intermediate().pem
BY_ROOT = make("localhost", authority())
GOOD: dict[str, tuple[Certificate, bytes, bytes | None]] = {
    "PEM with its chain": (server(), FULL, None),
    "PEM up to the root": (server(), FULL + authority().pem, None),
    "PEM with text around": (server(), b"subject=server\n" + FULL + b"\nend\n", None),
    "a key in its own form": (server(), FULL, server().key_bytes(PEM, OWN_FORM)),
    "a key behind its parameters": (
        server(), FULL, b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
        + server().key_bytes(PEM, OWN_FORM)),
    "a key in DER": (server(), FULL, server().key_bytes(DER)),
    "DER": (BY_ROOT, BY_ROOT.der, BY_ROOT.key_bytes(DER)),
    "DER and a key in its own form": (BY_ROOT, BY_ROOT.der, BY_ROOT.key_bytes(DER, OWN_FORM)),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_what_is_taken(name: str, tmp_path: Path) -> None:
    expected, certificate, key = GOOD[name]
    assert shown_chain(Certificates(files(tmp_path, certificate, key)).context()) == expected.der


def test_certificate_and_key_may_be_one_file(tmp_path: Path) -> None:
    both = tmp_path / "both"
    for data in (FULL + server().key_bytes(), server().key_bytes() + FULL):
        both.write_bytes(data)
        assert shown_chain(Certificates(CertificateFiles(both, both)).context()) == server().der


EXPIRED = make("localhost", intermediate(), valid=(-10 * DAY, -DAY))
EARLY = make("localhost", intermediate(), valid=(DAY, 10 * DAY))
OLD_AUTHORITY = make("old authority", authority(), is_authority=True, valid=(-10 * DAY, -timedelta(hours=1)))
BY_OLD = make("localhost", OLD_AUTHORITY)
OTHER = make("other authority", is_authority=True)
WRONG: dict[str, tuple[bytes, bytes | None, str]] = {
    "nothing in it": (b"", None, "cert holds no certificate, or a damaged one"),
    "no certificate": (b"hello", None, "cert holds no certificate, or a damaged one"),
    "only a key": (server().key_bytes(), None, "cert holds no certificate, or a damaged one"),
    "damaged PEM": (server().pem.replace(b"MII", b"AII", 1), None, "cert holds no certificate, or a damaged one"),
    "damaged DER": (server().der[:-1], None, "cert holds no certificate, or a damaged one"),
    "a certificate as key": (FULL, server().pem, "key holds no private key"),
    "no key": (FULL, b"hello", "key holds no private key, or a damaged one"),
    "an empty key": (FULL, b"", "key holds no private key, or a damaged one"),
    "a damaged key": (FULL, server().key_bytes().replace(b"MIG", b"AIG"), "key holds no private key, or a damaged one"),
    "another's key": (FULL, client().key_bytes(), "key is not the key of the certificate in "),
    "the issuer's key": (FULL, intermediate().key_bytes(), "key is not the key of the certificate in "),
    "an encrypted key": (FULL, server().key_bytes(password=b"secret"), "key: the key is encrypted"),
    "an encrypted key in its own form": (
        FULL, server().key_bytes(PEM, OWN_FORM, b"secret"), "key: the key is encrypted"),
    "an encrypted key in DER": (FULL, server().key_bytes(DER, PKCS8, b"secret"), "key: the key is encrypted"),
    "expired": (EXPIRED.pem, EXPIRED.key_bytes(), "cert: the certificate of CN=localhost expired on 20"),
    "not yet valid": (EARLY.pem, EARLY.key_bytes(), "cert: the certificate of CN=localhost is not valid before 20"),
    "an expired issuer": (
        BY_OLD.pem + OLD_AUTHORITY.pem, BY_OLD.key_bytes(), "the certificate of CN=old authority expired on 20"),
    "the issuer first": (
        intermediate().pem + server().pem, intermediate().key_bytes(), "certificate 2 did not issue the one before it"),
    "a stranger in the chain": (FULL + OTHER.pem, None, "certificate 3 did not issue the one before it"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str, tmp_path: Path) -> None:
    certificate, key, words = WRONG[name]
    with pytest.raises(CertificateError) as caught:
        Certificates(files(tmp_path, certificate, key))
    assert words in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_ours_to_read(tmp_path: Path) -> None:
    certificate, key = server().save(tmp_path, "server")
    with pytest.raises(CertificateError, match=r"nowhere cannot be read: No such file or directory"):
        Certificates(CertificateFiles(tmp_path / "nowhere", key))
    with pytest.raises(CertificateError, match=r"cannot be read: Is a directory"):
        Certificates(CertificateFiles(certificate, tmp_path))


def test_clients_are_asked_for_what_the_authority_issued(tmp_path: Path) -> None:
    certificate, key = server().save(tmp_path, "server", intermediate())
    ca = tmp_path / "ca"
    for data in (authority().pem, authority().der, OTHER.pem + authority().pem):
        ca.write_bytes(data)
        context = Certificates(CertificateFiles(certificate, key, ca)).context()
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert authority().der in context.get_ca_certs(binary_form=True)
    assert Certificates(CertificateFiles(certificate, key)).context().verify_mode is ssl.CERT_NONE
    for data, words in ((b"", "ca holds no certificate"), (OLD_AUTHORITY.pem, "CN=old authority expired on")):
        ca.write_bytes(data)
        with pytest.raises(CertificateError, match=words):
            Certificates(CertificateFiles(certificate, key, ca))


def test_reload_takes_the_new_and_keeps_the_old_if_the_new_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = files(tmp_path, FULL)
    loaded = Certificates(given)
    before = loaded.context()

    files(tmp_path, EXPIRED.pem, EXPIRED.key_bytes())
    loaded.reload()
    assert loaded.context() is before
    assert "the certificate stays as it is: " in caplog.text
    assert "expired on" in caplog.text

    with caplog.at_level(logging.INFO):
        files(tmp_path, BY_ROOT.pem, BY_ROOT.key_bytes())
        loaded.reload()
    assert shown_chain(loaded.context()) == BY_ROOT.der
    assert "the certificate was read again" in caplog.text


def test_what_is_old_in_tls_is_off(tmp_path: Path) -> None:
    context = Certificates(files(tmp_path, FULL)).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Certificates(files(tmp_path, FULL))
    assert len(os.listdir("/proc/self/fd")) == before
