# SPDX-License-Identifier: MIT
"""WebSocket as a layer (rule 7): one packet per binary message; what else a peer may do, and what it may not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from nnrp_wire import WireLimits
from nnrp_wire.websocket import MAX_REQUEST_BYTES, WebSocketLayer
from tests.nnrp_wire.carriers import NO_HOLD, WS, WSS, Carrier, listening
from tests.support import wire_frames as w
from tests.support.raw_peer import WebSocketPeer

LIMIT = 10_000
PACKET, OTHER = w.submit(5, 1, b"first" * 100), w.frame(w.PING)


class Client:
    """The client half of the `websockets` package on a layer."""

    def __init__(self, step: int = 65536) -> None:
        self.layer = WebSocketLayer(LIMIT)
        self.protocol = ClientProtocol(parse_uri("ws://localhost/any/path"))
        self.step = step
        self.received: list[Frame] = []

    def feed(self, data: bytes) -> bytes:
        """Bytes of ours; the packets the layer found in them. Its answers come back to us."""
        packets = b"".join(self.layer.receive(data[at : at + self.step]) for at in range(0, len(data), self.step))
        self.take(self.layer.take_answers())
        return packets

    def flush(self) -> bytes:
        return self.feed(b"".join(self.protocol.data_to_send()))

    def take(self, data: bytes) -> None:
        self.protocol.receive_data(data)
        self.received += [event for event in self.protocol.events_received() if isinstance(event, Frame)]

    def opened(self) -> Client:
        self.protocol.send_request(self.protocol.connect())
        assert self.flush() == b""
        assert self.protocol.state.name == "OPEN"
        return self


def request(*headers: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    usual = (
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version: 13",
    )
    return "\r\n".join([f"{method} /any {version}", *(headers or usual), "", ""]).encode()


# The opening handshake


@pytest.mark.parametrize("step", [1, 7, 65536])
def test_a_handshake_is_answered_without_extension_or_subprotocol(step: int) -> None:
    layer = WebSocketLayer(LIMIT)
    data = request(
        "Host: localhost", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: chat",
        "Sec-WebSocket-Extensions: permessage-deflate",
    )  # fmt: skip
    for at in range(0, len(data), step):
        assert layer.receive(data[at : at + step]) == b""

    answer = layer.take_answers().decode()
    assert answer.startswith("HTTP/1.1 101 ")
    assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer  # of RFC 6455, section 1.3
    assert "Extensions" not in answer
    assert "Protocol:" not in answer
    assert layer.ended is None


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(request("Host: localhost"), 426, id="plain HTTP"),
        pytest.param(request("Host: h", "Upgrade: h2c", "Connection: Upgrade"), 426, id="another upgrade"),
        pytest.param(request("Upgrade: websocket", "Connection: Upgrade"), 400, id="no key"),
        pytest.param(request().replace(b"AAAA", b"AA"), 400, id="a short key"),
        pytest.param(request().replace(b"Version: 13", b"Version: 8"), 400, id="an old version"),
        pytest.param(request().replace(b"\r\n\r\n", b"\r\nOrigin: https://a.test\r\n\r\n"), 403, id="from a web page"),
        pytest.param(request().replace(b"\r\n\r\n", b"\r\nOrigin: null\r\n\r\n"), 403, id="from a local page"),
        pytest.param(b"POST / HTTP/1.1\r\n\r\n", None, id="POST"),
        pytest.param(w.hello(), None, id="plain NNRP"),
        pytest.param(b"\x16\x03\x01\x02\x00", None, id="TLS"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431, id="too many headers"),
        pytest.param(b"GET /" + b"a" * MAX_REQUEST_BYTES, None, id="a request without end"),
        pytest.param(b"GET \xff\r\nnonsense\r\n\r\n", None, id="nonsense"),
        pytest.param(request("Content-Length: 5") + b"hello", None, id="a body"),
    ],
)
@pytest.mark.parametrize("step", [1, 65536])
def test_no_handshake(data: bytes, status: int | None, step: int) -> None:
    layer = WebSocketLayer(LIMIT)
    for at in range(0, len(data), step):
        assert layer.receive(data[at : at + step]) == b""

    answer = layer.take_answers()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()) if status else answer == b""
    assert layer.ended is not None
    assert layer.wrap(PACKET) == b"" == layer.receive(request()) == layer.farewell()


def test_frames_sent_with_the_request_are_taken_after_the_answer() -> None:
    """A ping among them must not be answered before the request is."""
    client = Client()
    client.protocol.send_request(client.protocol.connect())
    early = b"".join(frame.serialize(mask=True) for frame in (Frame(Opcode.PING, b"?"), Frame(Opcode.BINARY, PACKET)))

    assert client.feed(b"".join(client.protocol.data_to_send()) + early) == PACKET
    assert client.received == [Frame(Opcode.PONG, b"?")]


def test_a_refused_request_with_frames_behind_it_is_only_refused() -> None:
    layer = WebSocketLayer(LIMIT)
    layer.receive(request("Host: localhost") + b"\xff\xff\xff")
    assert layer.take_answers().startswith(b"HTTP/1.1 426")


# Messages


@pytest.mark.parametrize("step", [1, 7, 65536])
def test_7_a_packet_per_message_however_it_is_cut(step: int) -> None:
    client = Client(step).opened()
    client.protocol.send_binary(PACKET)
    client.protocol.send_ping(b"between")
    client.protocol.send_binary(OTHER[:10], fin=False)
    client.protocol.send_ping(b"in between")
    client.protocol.send_continuation(OTHER[10:], fin=True)

    assert client.flush() == PACKET + OTHER
    assert client.received == [Frame(Opcode.PONG, b"between"), Frame(Opcode.PONG, b"in between")]
    assert not client.layer.holds_half


def test_7_packets_of_ours_are_a_message_each() -> None:
    client = Client().opened()
    client.take(client.layer.wrap(OTHER + PACKET + OTHER))

    assert client.received == [Frame(Opcode.BINARY, data) for data in (OTHER, PACKET, OTHER)]


def test_a_packet_larger_than_common_frame_limits_goes_in_pieces() -> None:
    client = Client().opened()
    packet = w.frame(w.PARTIAL_RESULT, b"", b"x" * (20 << 20))
    client.protocol.max_message_size = 64 << 20
    client.take(client.layer.wrap(packet))

    first, *rest = client.received
    assert (first.opcode, first.fin) == (Opcode.BINARY, False)
    assert [(frame.opcode, frame.fin) for frame in rest] == [(Opcode.CONT, False), (Opcode.CONT, True)]
    assert max(len(frame.data) for frame in client.received) < 16 << 20
    assert b"".join(bytes(frame.data) for frame in client.received) == packet


SEND = Callable[[ClientProtocol], object]


@pytest.mark.parametrize(
    ("send", "code"),
    [
        pytest.param(lambda p: p.send_text(b"hello"), 1003, id="7 text"),
        pytest.param(lambda p: p.send_text(PACKET, fin=False), 1002, id="7 the begin of text, and no end"),
        pytest.param(lambda p: p.send_binary(PACKET + OTHER), 1002, id="7 two packets"),
        pytest.param(lambda p: p.send_binary(PACKET[:-1]), 1002, id="7 a packet cut off"),
        pytest.param(lambda p: p.send_binary(PACKET[:39]), 1002, id="7 half a header"),
        pytest.param(lambda p: p.send_binary(b""), 1002, id="7 nothing"),
        pytest.param(lambda p: p.send_binary(bytes(LIMIT + 1)), 1009, id="4 too large"),
        pytest.param(lambda p: (p.send_binary(bytes(LIMIT), fin=False), p.send_continuation(b"x", fin=False)), 1009,
                     id="4 too large in pieces"),
        pytest.param(lambda p: p.writes.append(b"\x82\x00"), 1002, id="not masked"),
        pytest.param(lambda p: p.writes.append(b"\x83\x80" + bytes(4)), 1002, id="an unknown opcode"),
        pytest.param(lambda p: p.writes.append(b"\xc2\x80" + bytes(4)), 1002, id="a compressed frame"),
        pytest.param(lambda p: p.writes.append(b"\x80\x80" + bytes(4)), 1002, id="a continuation of nothing"),
        pytest.param(lambda p: p.writes.append(b"\x09\x80" + bytes(4)), 1002, id="a ping in pieces"),
    ],
)  # fmt: skip
def test_a_broken_rule_ends_it_with_a_close_code(send: SEND, code: int) -> None:
    client = Client().opened()
    client.protocol.send_binary(PACKET)
    send(client.protocol)
    client.protocol.writes.append(Frame(Opcode.BINARY, OTHER).serialize(mask=True))

    assert client.flush() == PACKET
    assert client.layer.ended is not None
    assert [frame.opcode for frame in client.received] == [Opcode.CLOSE]
    assert int.from_bytes(client.received[0].data[:2], "big") == code
    assert client.layer.wrap(PACKET) == b"" == client.layer.receive(b"x" * 100) == client.layer.farewell()


def test_the_peers_close_is_echoed_after_what_came_before() -> None:
    client = Client().opened()
    client.protocol.send_binary(PACKET)
    client.protocol.send_close(1000, "done")

    assert client.flush() == PACKET
    assert client.layer.ended == "WebSocket: closed"
    assert client.received == [Frame(Opcode.CLOSE, b"\x03\xe8done")]


def test_the_farewell_says_going_away() -> None:
    client = Client().opened()
    client.take(client.layer.farewell())
    assert client.received == [Frame(Opcode.CLOSE, b"\x03\xe9")]
    assert client.layer.wrap(PACKET) == b""


def test_half_a_message_is_seen() -> None:
    client = Client().opened()
    client.protocol.send_binary(PACKET)
    (data,) = client.protocol.data_to_send()
    for end in (1, 5, len(data) - 1):
        layer = Client().opened().layer
        layer.receive(data[:end])
        assert layer.holds_half
    client.protocol.send_binary(PACKET[:50], fin=False)
    client.flush()
    assert client.layer.holds_half


def test_empty_pieces_without_end_cost_nothing() -> None:
    client = Client().opened()
    client.protocol.send_binary(b"", fin=False)
    client.flush()
    for _ in range(100):
        client.feed(Frame(Opcode.CONT, b"", fin=False).serialize(mask=True) * 100)
    assert len(client.layer._message) == 0
    assert client.layer.holds_half


# Over sockets


@pytest.mark.asyncio
@pytest.mark.parametrize("carrier", [WS, WSS], ids=lambda carrier: carrier.name)
async def test_the_websockets_own_ping_and_close_are_answered(carrier: Carrier) -> None:
    async with listening(carrier) as place:
        peer = await place.opened()
        assert isinstance(peer, WebSocketPeer)
        peer.protocol.send_ping(b"there?")
        peer._write()
        assert await peer.control_frame() == Frame(Opcode.PONG, b"there?")

        peer.protocol.send_close(1000)
        peer._write()
        assert (await peer.control_frame()).opcode is Opcode.CLOSE
        await place.handler.until(lambda: place.listener.connection_count == 0)
        assert place.handler.told == ["opened", "closed"]
        await peer.rest()
        await peer.close()


@pytest.mark.asyncio
async def test_a_drained_connection_hears_that_we_go_away() -> None:
    async with listening(WS) as place:
        peer = await place.opened()
        assert isinstance(peer, WebSocketPeer)
        await place.listener.drain(0)
        assert await peer.control_frame() == Frame(Opcode.CLOSE, b"\x03\xe9")
        await peer.close()


@pytest.mark.asyncio
async def test_pings_of_a_peer_that_does_not_read_are_bounded() -> None:
    from tests.nnrp_wire.test_slow_peers import small_buffers

    limits = WireLimits(max_unread_answer_bytes=100_000, write_high_water_bytes=10_000)
    async with listening(WS, limits) as place:
        small_buffers(place.listener)
        peer = await place.opened()
        peer.stop_reading()
        pings = Frame(Opcode.PING, b"x" * 100).serialize(mask=True) * 100
        for _ in range(1000):
            if place.listener.connection_count == 0:
                break
            peer.writer.write(pings)
            await asyncio.sleep(0)
        await place.handler.until(lambda: place.listener.connection_count == 0)
        await peer.close()


@pytest.mark.asyncio
async def test_no_body_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with listening(WS, NO_HOLD) as place:
        peer = await place.opened(w.submit(5, 1, b"stream 1 SECRET"[:8]), w.submit(6, 2, b"hold SECRET"))
        await peer.replies(2)
        peer.send_raw(b"SECRET" * 10)
        await peer.rest()
        await peer.close()
    assert "SECRET" not in "".join(r.getMessage() for r in caplog.records if r.name.startswith("nnrp_wire"))
