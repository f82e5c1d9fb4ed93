# SPDX-License-Identifier: MIT
"""The command line's client on every transport of the NNRP door, and what it says about certificates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support import certificates
from tests.vllm_nnrp_client.both_doors import LOOPBACK, Doors, both_doors, collect, question
from vllm_nnrp.addresses import NetworkUrl, NnrpUrl, SocketUrl
from vllm_nnrp.certificates import CertificateFiles, Certificates
from vllm_nnrp.client.events import Done, Text
from vllm_nnrp.client.transport import ClientError, NnrpTarget, nnrp_target, open_client
from vllm_nnrp.nnrp_settings import NnrpSettings

SCHEMES = ("nnrp", "nnrps", "ws", "wss", "quic", "unix")
ROOT = certificates.authority()


@asynccontextmanager
async def on_every_transport(folder: Path) -> AsyncIterator[tuple[Doors, dict[str, NnrpUrl]]]:
    certificate, key = certificates.server().save(folder, "server", certificates.intermediate())
    network = (NetworkUrl(scheme, LOOPBACK) for scheme in SCHEMES[:-1])
    listen: tuple[NnrpUrl, ...] = (*network, SocketUrl(str(folder / "a socket")))
    settings = NnrpSettings(listen, certificates=Certificates(CertificateFiles(certificate, key)))
    async with both_doors(nnrp=settings) as doors:
        yield doors, dict(zip(SCHEMES, doors.urls, strict=True))


@pytest.mark.asyncio
@pytest.mark.parametrize("form", ["PEM", "DER"])
async def test_a_question_on_every_transport(tmp_path: Path, form: str) -> None:
    trust = tmp_path / "root"
    trust.write_bytes(ROOT.pem if form == "PEM" else ROOT.der)
    async with on_every_transport(tmp_path) as (_, urls):
        for scheme, url in urls.items():
            environ = {"VLLM_NNRP_TRUST": str(trust)} if scheme == "wss" else {}
            target = nnrp_target(str(url), environ, None if scheme == "wss" else trust)
            async with open_client(target) as client:
                events = await collect(client, question("hello"))
            assert "".join(event.text for event in events if isinstance(event, Text)), scheme
            assert isinstance(events[-1], Done), scheme


@pytest.mark.asyncio
@pytest.mark.parametrize("scheme", ["nnrps", "wss", "quic"])
async def test_a_server_that_is_not_trusted_is_not_talked_to(tmp_path: Path, scheme: str) -> None:
    stranger = certificates.make("stranger", is_authority=True).der
    async with on_every_transport(tmp_path) as (doors, urls):
        with pytest.raises(ClientError, match="its certificate is not trusted"):
            await open_client(NnrpTarget(urls[scheme], trust=stranger)).__aenter__()
        assert doors.engine.requests == []


@pytest.mark.asyncio
async def test_nobody_at_the_socket_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="no such file or directory"):
        await open_client(NnrpTarget(SocketUrl(str(tmp_path / "nothing")))).__aenter__()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "nowhere cannot be read: No such file or directory"),
        (ROOT.pem + ROOT.pem, "holds 2 certificates: the SDK's client trusts exactly one"),
        (ROOT.pem.replace(b"MII", b"AII", 1), "holds no certificate, or a damaged one"),
        (b"", "holds no certificate, or a damaged one"),
    ],
    ids=["missing", "two", "damaged", "empty"],  # workers must agree on them, and a certificate is made anew in each
)
def test_what_cannot_be_trusted(tmp_path: Path, data: bytes | None, words: str) -> None:
    file = tmp_path / "nowhere"
    if data is not None:
        file = tmp_path / "root"
        file.write_bytes(data)
    with pytest.raises(ClientError, match=words):
        nnrp_target("nnrps://h", {}, file)


def test_trust_is_needed_where_there_is_something_to_trust(tmp_path: Path) -> None:
    for url in ("nnrps://h", "wss://h", "quic://h"):
        with pytest.raises(ClientError, match="needs --trust"):
            nnrp_target(url, {})
    for url in ("nnrp://h", "ws://h", "unix:///x"):
        assert nnrp_target(url, {"VLLM_NNRP_TRUST": "/no/such/file"}).trust is None
