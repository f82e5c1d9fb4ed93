# SPDX-License-Identifier: MIT
"""Strangers, silence and limits over real sockets, on every transport. Peers here are made of hand-built frames."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace

import pytest

from nnrp_wire import Operation, Session, WireLimits
from nnrp_wire.handles import OperationHandle, SessionHandle
from tests.nnrp_wire.carriers import NO_HOLD, TCP, UNIX, Carrier, listening
from tests.support import wire_frames as w
from tests.support.raw_peer import RawPeer, WebSocketPeer

TIMEOUT_S = 10
ANSWER = [w.PARTIAL_RESULT, w.RESULT_PUSH]


# Strangers


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x00", id="a TLS alert"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="SSH"),
        pytest.param(b"\x00" * 4096, id="zeros"),
        pytest.param(b"\r\n\r\n\r\n", id="six bytes"),
    ],
)
async def test_a_stranger_is_closed_and_others_are_not(stream_carrier: Carrier, data: bytes) -> None:
    async with listening(stream_carrier, replace(NO_HOLD, hello_timeout_s=60)) as place:
        other = await place.opened()
        stranger = await stream_carrier.stream(place.listener)
        stranger.send(data)
        await stranger.rest()

        other.send(w.submit(5, 1, b"stream 1"))
        assert await other.replies(2) == ANSWER
        await stranger.close()
        await other.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(100), id="no packet"),
        pytest.param(w.submit(1, 1), id="a frame before the hello"),
        pytest.param(w.hello() + w.hello(), id="two hellos"),
        pytest.param(w.submit(1, 1, b"x" * 5000)[:40], id="an oversize packet, by its header"),
    ],
)
async def test_who_breaks_the_protocol_is_closed_and_others_are_not(carrier: Carrier, data: bytes) -> None:
    async with listening(carrier, WireLimits(max_packet_bytes=4096, trace_hold_s=0)) as place:
        other = await place.opened()
        stranger = await place.peer()
        stranger.send_raw(data)
        await stranger.rest()

        other.send(w.submit(5, 1, b"stream 1"))
        assert await other.replies(2) == ANSWER
        await stranger.close()
        await other.close()


# Silence


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("limits", "frames"),
    [
        pytest.param(WireLimits(hello_timeout_s=0.1), (), id="20 no hello"),
        pytest.param(WireLimits(hello_timeout_s=0.1), (w.probe(),), id="20 only probes"),
        pytest.param(WireLimits(idle_timeout_s=0.1), (w.hello(), w.session_open()), id="20 idle"),
    ],
)
async def test_20_own_silence_is_bounded(carrier: Carrier, limits: WireLimits, frames: tuple[bytes, ...]) -> None:
    async with listening(carrier, limits) as place:
        peer = await place.peer()
        peer.send(*frames)
        await peer.rest()

        await place.handler.until(lambda: place.listener.connection_count == 0)
        assert place.handler.told in ([], ["opened", "closed"])
        await peer.close()


@pytest.mark.asyncio
async def test_20_own_a_peer_that_says_nothing_at_all_is_closed(stream_carrier: Carrier) -> None:
    """Its TLS or WebSocket handshake never begins."""
    async with listening(stream_carrier, WireLimits(hello_timeout_s=0.1)) as place:
        peer = await stream_carrier.stream(place.listener)
        await peer.rest()
        await peer.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("end", [3, 60], ids=["half a header", "half a packet"])
async def test_20_own_half_a_packet_is_not_waited_for_for_ever(carrier: Carrier, end: int) -> None:
    async with listening(carrier, WireLimits(half_packet_timeout_s=0.1)) as place:
        peer = await place.opened()
        await half_a_packet(peer, w.submit(1, 1, b"x" * 2000), end)
        await peer.rest()

        await place.handler.until(lambda: place.listener.connection_count == 0)
        await peer.close()


async def half_a_packet(peer: RawPeer, packet: bytes, end: int) -> None:
    """On a WebSocket: half of the frame that carries it."""
    if isinstance(peer, WebSocketPeer):
        peer.protocol.send_binary(packet)
        packet = b"".join(peer.protocol.data_to_send())
    peer.writer.write(packet[:end])


@pytest.mark.asyncio
async def test_20_a_trickle_does_not_prolong_a_half_packet(carrier: Carrier) -> None:
    async with listening(carrier, WireLimits(half_packet_timeout_s=0.1)) as place:
        peer = await place.opened()
        packet = w.submit(1, 1, b"x" * 2000)
        if isinstance(peer, WebSocketPeer):
            peer.protocol.send_binary(packet)
            packet = b"".join(peer.protocol.data_to_send())
        started_s = time.monotonic()
        for byte in packet:
            if peer.is_closed:
                break
            peer.writer.write(bytes([byte]))
            await asyncio.sleep(0.005)

        await peer.rest()
        assert time.monotonic() - started_s < 5
        await peer.close()


@pytest.mark.asyncio
async def test_20_work_in_flight_is_not_idleness(carrier: Carrier) -> None:
    async with listening(carrier, WireLimits(idle_timeout_s=0.1, trace_hold_s=0)) as place:
        peer = await place.opened(w.submit(5, 1, b"late"))
        assert (await peer.reply()).kind == w.PARTIAL_RESULT
        asyncio.get_running_loop().call_later(0.4, place.handler.release.set)  # four idle times

        assert (await peer.reply()).kind == w.RESULT_PUSH
        await peer.rest()  # and then it is idle
        assert place.handler.ended == []
        await peer.close()


# Caps


@pytest.mark.asyncio
async def test_connections_are_capped_and_places_return(stream_carrier: Carrier) -> None:
    async with listening(stream_carrier, WireLimits(max_connections=2)) as place:
        first, second = await place.opened(), await place.opened()
        third = await stream_carrier.stream(place.listener)
        assert await third.rest() == b""

        await first.close()
        await place.handler.until(lambda: place.listener.connection_count == 1)
        fourth = await place.opened()
        for peer in (second, third, fourth):
            await peer.close()


# Sockets


@pytest.mark.asyncio
async def test_socket_options_and_addresses() -> None:
    async with listening(TCP) as place:
        peer = await place.opened()
        (shell,) = place.listener._connections
        assert shell._transport is not None
        sock = shell._transport.get_extra_info("socket")

        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert place.listener.addresses == (("127.0.0.1", place.listener.port),)
        assert place.listener.port > 0
        host, port = peer.writer.get_extra_info("sockname")
        assert place.handler.sessions[0].peer == f"{host}:{port}"
        await peer.close()


@pytest.mark.asyncio
async def test_a_session_knows_its_transport(carrier: Carrier) -> None:
    async with listening(carrier) as place:
        peer = await place.opened()
        session = place.handler.sessions[0]

        assert session.transport == carrier.name
        assert (session.peer == "local") is (carrier is UNIX)
        await peer.close()


@pytest.mark.asyncio
async def test_a_session_knows_its_priority_class() -> None:
    async with listening() as place:
        peer = await place.opened(*(w.session_open(priority=each) for each in (0, 2)))
        await place.handler.until(lambda: len(place.handler.sessions) == 3)
        assert [session.priority_class for session in place.handler.sessions] == [1, 0, 2]
        await peer.close()


def seam(session: SessionHandle, operation: OperationHandle) -> tuple[Session, Operation]:
    """For the type checker: the handles are what the carrier seam promises."""
    return session, operation
