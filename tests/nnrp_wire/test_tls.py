# SPDX-License-Identifier: MIT
"""TLS as a layer: handshakes good and bad, every cut of the bytes, orderly ends, client certificates, renewal."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from nnrp_wire import NetworkEndpoint, NnrpListener, WireLimits
from nnrp_wire.layers import Layers
from nnrp_wire.tls import TlsLayer
from tests.nnrp_wire.carriers import NO_HOLD, TLS, WSS, Carrier, client_context, listening, server_context
from tests.nnrp_wire.scripted_handler import ScriptedHandler
from tests.support import certificates
from tests.support import wire_frames as w
from tests.support.raw_peer import RawPeer


class Client:
    """The ssl module's own client on memory buffers, connected to a layer by `step` bytes at a time."""

    def __init__(self, layer: TlsLayer | Layers, context: ssl.SSLContext, step: int = 65536) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.layer = layer
        self.step = step
        self.arrived = b""  # at the server

    def exchange(self) -> None:
        """What either side has to say reaches the other."""
        while data := self.outgoing.read():
            for at in range(0, len(data), self.step):
                self.arrived += self.layer.receive(data[at : at + self.step])
            self.incoming.write(self.layer.take_answers())
            self.is_shaken()

    def is_shaken(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def shake(self) -> Client:
        while not self.is_shaken():
            self.exchange()
        self.exchange()
        return self

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.exchange()

    def read(self, wrapped: bytes) -> bytes:
        self.incoming.write(wrapped)
        received = b""
        try:
            while data := self.tls.read(65536):
                received += data
        except ssl.SSLWantReadError:
            pass
        return received


def version(context: ssl.SSLContext, only: ssl.TLSVersion) -> ssl.SSLContext:
    context.minimum_version = context.maximum_version = only
    return context


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificates.authority().pem.decode())


# The layer by bytes


@pytest.mark.parametrize("only", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("step", [1, 7, 65536])
def test_bytes_pass_both_ways_however_they_are_cut(only: ssl.TLSVersion, step: int) -> None:
    layer = TlsLayer(server_context())
    client = Client(layer, version(trusting(), only), step).shake()
    assert client.tls.version() == only.name.replace("_", ".")

    client.send(b"question" * 5000)
    assert client.arrived == b"question" * 5000
    assert client.read(layer.wrap(b"answer" * 50_000)) == b"answer" * 50_000
    assert layer.ended is None


def test_what_comes_with_the_last_flight_of_the_handshake_is_not_lost() -> None:
    client = Client(TlsLayer(server_context()), version(trusting(), ssl.TLSVersion.TLSv1_3))
    while not client.is_shaken():
        client.exchange()
    client.tls.write(b"early")
    client.exchange()
    assert client.arrived == b"early"


def test_the_peers_close_ends_it_after_what_came_before() -> None:
    layer = TlsLayer(server_context())
    client = Client(layer, trusting()).shake()
    client.tls.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.exchange()

    assert client.arrived == b"last words"
    assert layer.ended == "TLS closed by the peer"
    assert layer.wrap(b"x") == b"" == layer.receive(b"x") == layer.farewell()


def test_the_farewell_is_an_orderly_end() -> None:
    layer = TlsLayer(server_context())
    client = Client(layer, trusting()).shake()

    client.incoming.write(layer.wrap(b"bye") + layer.farewell())
    assert client.tls.read(10) == b"bye"
    assert client.tls.read(10) == b""  # not SSLEOFError
    assert layer.wrap(b"x") == b""


def test_nothing_is_sent_before_the_handshake() -> None:
    layer = TlsLayer(server_context())
    assert layer.wrap(b"x") == b"" == layer.farewell() == layer.take_answers()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        pytest.param(w.hello(), id="plain NNRP"),
        pytest.param(b"\0" * 100, id="zeros"),
    ],
)
def test_a_stranger_ends_it_with_a_reason(data: bytes) -> None:
    layer = TlsLayer(server_context())
    assert layer.receive(data) == b""
    assert layer.ended is not None
    assert layer.ended.startswith("TLS: ")  # then OpenSSL's own words


def test_a_damaged_record_ends_it() -> None:
    layer = TlsLayer(server_context())
    client = Client(layer, trusting()).shake()
    client.tls.write(b"x" * 100)
    data = bytearray(client.outgoing.read())
    data[-1] ^= 1

    assert layer.receive(bytes(data)) == b""
    assert layer.ended == "TLS: decryption failed or bad record mac"
    assert layer.take_answers()  # the alert


# Over sockets


def context_for(folder: Path, own: certificates.Certificate, *chain: certificates.Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*own.save(folder, "server", *chain))
    return context


@pytest.mark.asyncio
@pytest.mark.parametrize("websocket", [False, True], ids=["tls", "wss"])
async def test_client_certificates(websocket: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = context_for(tmp_path, certificates.server(), certificates.intermediate())
    context.load_verify_locations(cadata=certificates.authority().pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    known, unknown = trusting(), trusting()
    known.load_cert_chain(*certificates.client().save(tmp_path, "client"))
    stranger = certificates.make("stranger", certificates.make("another authority", is_authority=True))
    unknown.load_cert_chain(*stranger.save(tmp_path, "stranger"))
    carrier = WSS if websocket else TLS
    caplog.set_level(logging.INFO)
    async with NnrpListener(ScriptedHandler(), NO_HOLD) as listener:
        await listener.listen(NetworkEndpoint("127.0.0.1", 0, websocket, lambda: context))

        peer = await (await carrier.peer_at(listener.endpoints[0], known)).opened()
        peer.send(w.frame(w.PING))
        assert (await peer.reply()).kind == w.PONG
        for wrong in (trusting(), unknown):
            refused = await RawPeer.tcp(listener.port, wrong)
            assert await refused.rest() == b""
            await refused.close()
        assert "TLS: peer did not return a certificate" in caplog.text
        assert "TLS: client certificate refused, unable to get local issuer certificate" in caplog.text
        await peer.close()


@pytest.mark.asyncio
async def test_a_renewed_certificate_is_used_from_the_next_connection_on(tmp_path: Path) -> None:
    current = [server_context()]
    async with NnrpListener(ScriptedHandler(), NO_HOLD) as listener:
        await listener.listen(NetworkEndpoint("127.0.0.1", 0, tls=lambda: current[0]))
        old = await (await RawPeer.tcp(listener.port, client_context())).opened()
        renewed = certificates.make("localhost", certificates.authority())
        current[0] = context_for(tmp_path, renewed)
        new = await (await RawPeer.tcp(listener.port, client_context())).opened()

        shown = [peer.writer.get_extra_info("ssl_object").getpeercert(True) for peer in (old, new)]
        assert shown == [certificates.server().der, renewed.der]
        for peer in (old, new):
            peer.send(w.submit(5, 1, b"stream 1"))
            assert await peer.replies(2) == [w.PARTIAL_RESULT, w.RESULT_PUSH]
            await peer.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("carrier", [TLS, WSS], ids=lambda carrier: carrier.name)
async def test_a_drained_connection_is_closed_in_order(carrier: Carrier) -> None:
    async with listening(carrier) as place:
        peer = await place.opened()
        await place.listener.drain(0)
        async with asyncio.timeout(10):
            while await peer.reader.read(65536):  # an SSLError would say that the end was cut off
                pass
        await peer.close()


@pytest.mark.asyncio
async def test_a_silent_handshake_does_not_keep_others_waiting() -> None:
    async with listening(TLS, WireLimits(hello_timeout_s=60, trace_hold_s=0)) as place:
        silent = [await TLS.stream(place.listener) for _ in range(20)]
        await (await place.opened()).close()
        assert place.listener.connection_count >= 20
        for peer in silent:
            await peer.close()
