# SPDX-License-Identifier: MIT
"""What only QUIC has: datagrams of strangers, proof of address, losses, keep-alive, its streams, its sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from nnrp_wire import EndReason, NnrpListener, QuicEndpoint, WireLimits, quic, quic_acceptor
from nnrp_wire.quic import QuicTransport
from nnrp_wire.quic_acceptor import QuicAcceptor
from tests.nnrp_wire.carriers import NO_HOLD, QUIC, Place, listening, server_identity
from tests.nnrp_wire.scripted_handler import ScriptedHandler
from tests.support import certificates
from tests.support import wire_frames as w
from tests.support.raw_peer import QuicPeer, RawPeer
from tests.support.waiting import until

ANSWER = [w.PARTIAL_RESULT, w.RESULT_PUSH]
ROOT = certificates.authority().pem
# Version 0x1a2a3a4a is reserved for this purpose (RFC 9000, section 15).
UNKNOWN_VERSION = b"\xc0\x1a\x2a\x3a\x4a\x08" + b"d" * 8 + b"\x08" + b"s" * 8 + bytes(1200)
VERSION_NEGOTIATION = b"\x80\x00\x00\x00\x00\x08" + b"d" * 8 + b"\x08" + b"s" * 8 + b"\x00\x00\x00\x01" + bytes(1200)


def acceptor_of(place: Place) -> QuicAcceptor:
    (acceptor,) = place.listener._acceptors
    assert isinstance(acceptor, QuicAcceptor)
    return acceptor


def transport_of(place: Place) -> QuicTransport:
    """Of the one connection there is."""
    (shell,) = place.listener._connections
    assert isinstance(shell._transport, QuicTransport)
    return shell._transport


async def opened(place: Place, *frames: bytes) -> QuicPeer:
    peer = await place.opened(*frames)
    assert isinstance(peer, QuicPeer)
    return peer


async def is_served(peer: RawPeer, number: int = 50) -> bool:
    peer.send(w.submit(number, number, b"stream 1"))
    return await peer.replies(2) == ANSWER


@asynccontextmanager
async def datagrams(place: Place) -> AsyncIterator[socket.socket]:
    """A UDP socket that is connected to the listener."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(("127.0.0.1", place.listener.port))
        yield sock


async def hears_nothing(sock: socket.socket) -> bool:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await asyncio.get_running_loop().sock_recv(sock, 2000)
    return True


def initial() -> bytes:
    """The first datagram of a client."""
    client = QuicConnection(configuration=QuicConfiguration(is_client=True, server_name="localhost"))
    client.connect(("127.0.0.1", 1), now=0.0)
    (data, _), *_ = client.datagrams_to_send(now=0.0)
    return data


# Strangers


@pytest.mark.asyncio
async def test_noise_is_not_answered_and_nobody_else_notices() -> None:
    random = Random(7)
    first = initial()
    async with listening(QUIC) as place, datagrams(place) as sock:
        peer = await opened(place)
        for _ in range(300):
            sock.send(random.randbytes(random.choice((1, 20, 1200, 1400))))
            damaged = bytearray(first)
            for _ in range(random.randint(1, 4)):
                damaged[random.randrange(40)] = random.randrange(256)
            sock.send(damaged)
        sock.send(VERSION_NEGOTIATION)
        sock.send(first[:1100])  # a client fills its first datagram up to 1200 bytes
        assert await is_served(peer)
        await peer.close()


@pytest.mark.asyncio
async def test_an_unknown_version_is_told_ours_and_a_telling_is_not_answered() -> None:
    async with listening(QUIC) as place, datagrams(place) as sock:
        sock.send(UNKNOWN_VERSION)
        answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 2000), 5)
        assert answer[1:5] == bytes(4)
        assert (answer[6:14], answer[15:23]) == (b"s" * 8, b"d" * 8)
        assert b"\x00\x00\x00\x01" in answer[23:]

        sock.send(VERSION_NEGOTIATION)
        sock.send(UNKNOWN_VERSION[:600])  # the answer must not be larger than the question
        assert await hears_nothing(sock)


@pytest.mark.asyncio
async def test_without_room_a_newcomer_hears_nothing_and_places_return() -> None:
    async with listening(QUIC, replace(NO_HOLD, max_connections=1)) as place, datagrams(place) as sock:
        peer = await opened(place)
        sock.send(initial())
        assert await hears_nothing(sock)
        await peer.close()
        await until(lambda: place.listener.connection_count == 0)
        await (await opened(place)).close()


@pytest.mark.asyncio
async def test_a_handshake_that_is_not_finished_is_given_up() -> None:
    async with listening(QUIC, replace(NO_HOLD, hello_timeout_s=0.1)) as place, datagrams(place) as sock:
        sock.send(initial())
        await until(lambda: place.listener.connection_count == 1)
        await until(lambda: place.listener.connection_count == 0)
        await until(lambda: not acceptor_of(place)._places)
        assert not acceptor_of(place)._peers


# Proof of address


@pytest.mark.asyncio
async def test_under_load_a_newcomer_proves_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quic_acceptor, "_HANDSHAKES_WITHOUT_RETRY", 2)
    async with listening(QUIC) as place, datagrams(place) as sock:
        for _ in range(5):
            sock.send(initial())
        await until(lambda: place.listener.connection_count == 2)  # the others were asked for a proof

        def scenario() -> None:
            with QUIC.sdk_client(place.listener) as client:
                client.open_session().close()

        await asyncio.to_thread(scenario)
        peer = await opened(place)
        assert await is_served(peer)
        await peer.close()


@pytest.mark.asyncio
async def test_anothers_proof_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quic_acceptor, "_HANDSHAKES_WITHOUT_RETRY", 0)
    async with listening(QUIC) as place, datagrams(place) as sock, datagrams(place) as thief:
        client = QuicConnection(configuration=QuicConfiguration(is_client=True, server_name="localhost"))
        client.connect(("127.0.0.1", 1), now=0.0)
        for data, _ in client.datagrams_to_send(now=0.0):
            sock.send(data)
        retry = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 2000), 5)
        client.receive_datagram(retry, ("127.0.0.1", 1), now=0.1)
        for data, _ in client.datagrams_to_send(now=0.1):
            thief.send(data)
        assert await hears_nothing(thief)
        assert place.listener.connection_count == 0


# Losses and time


@pytest.mark.asyncio
@pytest.mark.parametrize("every", [3, 10])
async def test_lost_datagrams_lose_nothing(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = received = 0
    send, take = quic_acceptor._send, QuicTransport.datagram_received

    def lossy_send(sock: socket.socket, data: bytes, address: object) -> None:
        nonlocal sent
        sent += 1
        if sent % every:
            send(sock, data, address)  # type: ignore[arg-type]

    def lossy_receive(self: QuicTransport, data: bytes, address: tuple[object, ...]) -> None:
        nonlocal received
        received += 1
        if received % every:
            take(self, data, address)

    async with listening(QUIC) as place:
        peer = await opened(place)
        monkeypatch.setattr(quic_acceptor, "_send", lossy_send)
        monkeypatch.setattr(QuicTransport, "datagram_received", lossy_receive)
        peer.send(w.submit(5, 1, b"stream 200"))
        bodies = [(await peer.reply()).body for _ in range(200)]
        assert bodies == [b'{"n":%d}' % number for number in range(200)]
        assert (await peer.reply()).kind == w.RESULT_PUSH
        monkeypatch.undo()
        await peer.close()


@pytest.mark.asyncio
async def test_a_silent_connection_is_kept_alive() -> None:
    """SDK clients give up after 30 s in which they hear nothing."""
    async with listening(QUIC, replace(NO_HOLD, quic_keep_alive_s=0.05)) as place:
        peer = await opened(place)
        assert await is_served(peer)
        before = peer.protocol.heard
        await until(lambda: peer.protocol.heard >= before + 5)
        await peer.close()


@pytest.mark.asyncio
async def test_a_client_that_vanished_is_noticed() -> None:
    limits = replace(NO_HOLD, quic_idle_s=0.5, quic_keep_alive_s=0.1)
    async with listening(QUIC, limits) as place:
        peer = await opened(place, w.submit(5, 1, b"hold"))
        assert (await peer.reply()).kind == w.PARTIAL_RESULT
        peer.protocol.shut()
        await until(lambda: place.listener.connection_count == 0)
        assert place.handler.reasons() == [EndReason.DISCONNECTED]
        await until(lambda: not acceptor_of(place)._places)
        peer.writer.close()


@pytest.mark.asyncio
async def test_what_was_written_counts_until_it_is_acknowledged() -> None:
    async with listening(QUIC) as place:
        peer = await opened(place, w.submit(5, 1, b"hold"))
        await peer.reply()
        await until(lambda: transport_of(place).get_write_buffer_size() == 0)
        peer.stop_reading()
        await place.handler.operations[0].push(b"x" * 1000)
        await until(lambda: transport_of(place).get_write_buffer_size() > 1000)
        peer.read_on()
        assert (await peer.reply()).body == b"x" * 1000
        await until(lambda: transport_of(place).get_write_buffer_size() == 0)
        await peer.close()


# Streams


@pytest.mark.asyncio
@pytest.mark.parametrize("is_unidirectional", [False, True])
async def test_a_second_stream_ends_the_connection(is_unidirectional: bool) -> None:
    async with listening(QUIC) as place:
        other = await opened(place)
        peer = await opened(place)
        _, writer = await peer.protocol.create_stream(is_unidirectional)
        writer.write(w.frame(w.PING))
        await peer.rest()
        assert await is_served(other)
        for each in (peer, other):
            await each.close()
        writer.close()


@pytest.mark.asyncio
async def test_the_end_of_the_clients_stream_ends_the_connection() -> None:
    async with listening(QUIC) as place:
        peer = await opened(place)
        peer.writer.write_eof()
        assert await peer.rest() == b""
        await until(lambda: place.listener.connection_count == 0)
        await peer.close()


@pytest.mark.asyncio
async def test_what_waits_behind_a_gap_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quic, "_MAX_REASSEMBLY_BYTES", 50_000)
    async with listening(QUIC) as place:
        peer = await opened(place)
        peer.send(w.submit(5, 1, bytes(200_000)))
        sender = peer.protocol._quic._streams[0].sender
        first = sender._pending[0].start
        sender._pending.subtract(first, first + 1)  # its first byte never leaves
        await peer.rest()
        assert place.handler.told == ["opened", "closed"]
        await peer.close()


@pytest.mark.asyncio
async def test_a_drained_connection_is_closed_at_once() -> None:
    async with listening(QUIC) as place:
        peer = await opened(place, w.submit(5, 1, b"late"))
        await peer.reply()
        draining = asyncio.create_task(place.listener.drain(5))
        await asyncio.sleep(0)
        assert await is_turned_away(place)
        place.handler.release.set()
        assert (await peer.reply()).kind == w.RESULT_PUSH
        await draining
        await peer.rest()
        await peer.close()


async def is_turned_away(place: Place) -> bool:
    async with datagrams(place) as sock:
        sock.send(initial())
        return await hears_nothing(sock)


# The sockets and the library


@pytest.mark.asyncio
async def test_connections_survive_the_death_of_their_socket() -> None:
    async with listening(QUIC, replace(NO_HOLD, reopen_first_s=0.05)) as place:
        peer = await opened(place)
        port = place.listener.port
        acceptor_of(place)._died_of("the test wants it")
        assert place.listener.endpoints == ()
        await until(lambda: place.listener.endpoints != ())

        assert place.listener.port == port
        assert await is_served(peer)
        await (await opened(place)).close()
        await peer.close()


@pytest.mark.asyncio
async def test_a_fault_of_the_library_costs_one_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(QUIC) as place:
        other = await opened(place)
        victim = await opened(place)
        mine = {id(shell._transport._quic) for shell in place.listener._connections}  # type: ignore[union-attr]
        healthy = next(iter(mine))
        receive = QuicConnection.receive_datagram

        def faulty(self: QuicConnection, data: bytes, addr: tuple[str, int], now: float) -> None:
            if id(self) in mine and id(self) != healthy:
                raise RuntimeError("scripted fault")
            receive(self, data, addr, now)

        monkeypatch.setattr(QuicConnection, "receive_datagram", faulty)
        for peer in (other, victim):
            peer.send(w.frame(w.PING))
        await until(lambda: place.listener.connection_count == 1)
        assert "scripted fault" in caplog.text
        monkeypatch.undo()
        for peer in (other, victim):
            await peer.close()


@pytest.mark.asyncio
async def test_a_renewed_certificate_is_used_from_the_next_connection_on() -> None:
    current = [server_identity()]
    async with NnrpListener(ScriptedHandler(), WireLimits()) as listener:
        await listener.listen(QuicEndpoint("127.0.0.1", 0, lambda: current[0]))
        old = await QuicPeer.quic(listener.port, ROOT)
        renewed = certificates.make("localhost", certificates.authority())
        current[0] = ([renewed.certificate], renewed.key)
        new = await QuicPeer.quic(listener.port, ROOT)

        shown = [peer.protocol._quic.tls._peer_certificate for peer in (old, new)]
        assert shown == [certificates.server().certificate, renewed.certificate]
        for peer in (old, new):
            await peer.opened()
            await peer.close()
