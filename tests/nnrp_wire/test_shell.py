# SPDX-License-Identifier: MIT
"""The asyncio shell: sockets, time, backpressure, caps. Peers here are raw sockets, or an SDK client in a process."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from nnrp_wire import EndReason, NnrpListener, Operation, Session, WireLimits, open_listener
from nnrp_wire.handles import OperationHandle, SessionHandle
from tests.nnrp_wire.scripted_handler import ScriptedHandler
from tests.support import wire_frames as w

TIMEOUT_S = 10
NO_HOLD = WireLimits(trace_hold_s=0)


class RawPeer:
    """A client made of hand-built frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, listener: NnrpListener) -> RawPeer:
        return cls(*await asyncio.open_connection("127.0.0.1", listener.port))

    @classmethod
    async def open(cls, listener: NnrpListener, *frames: bytes) -> RawPeer:
        """Hello and session 1, its answers read; then `frames` sent."""
        peer = await cls.connect(listener)
        peer.send(w.hello(), w.session_open())
        assert [(await peer.reply()).kind for _ in range(2)] == [w.SERVER_HELLO_ACK, w.SESSION_OPEN_ACK]
        peer.send(*frames)
        return peer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def reply(self) -> w.Reply:
        async with asyncio.timeout(TIMEOUT_S):
            head = await self.reader.readexactly(40)
            fields = w.HEADER.unpack(head)
            (reply,) = w.take_apart(head + await self.reader.readexactly(fields[6] + fields[7]))
            return reply

    async def rest(self) -> bytes:
        """Everything until the server closes."""
        received = bytearray()
        async with asyncio.timeout(TIMEOUT_S):
            try:
                while data := await self.reader.read(65536):
                    received += data
            except ConnectionResetError:
                pass
        return bytes(received)

    def stop_reading(self) -> None:
        """What is on its way stays in the kernel's buffers, and then at the server."""
        self._transport.pause_reading()

    def read_on(self) -> None:
        self._transport.resume_reading()

    @property
    def _transport(self) -> asyncio.Transport:
        return cast(asyncio.Transport, self.writer.transport)

    @property
    def is_closed(self) -> bool:
        """By the server: an end of stream, or a reset if it left bytes of ours unread."""
        return self.reader.at_eof() or self.reader.exception() is not None

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def listening(limits: WireLimits = NO_HOLD) -> AsyncIterator[tuple[NnrpListener, ScriptedHandler]]:
    handler = ScriptedHandler()
    async with await open_listener(handler, limits=limits) as listener:
        yield listener, handler
    await handler.finished()


# Strangers and silence


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"\x00" * 4096, id="zeros"),
        pytest.param(b"\r\n", id="two bytes"),
        pytest.param(w.submit(1, 1), id="a frame before the hello"),
        pytest.param(w.hello() + w.hello(), id="two hellos"),
        pytest.param(w.hello() + w.submit(1, 1, b"x" * 5000)[:40], id="an oversize packet, by its header"),
    ],
)
async def test_a_stranger_is_closed_and_others_are_not(data: bytes) -> None:
    async with listening(WireLimits(max_packet_bytes=4096, trace_hold_s=0)) as (listener, _):
        other = await RawPeer.open(listener)
        stranger = await RawPeer.connect(listener)
        stranger.send(data)
        await stranger.rest()

        other.send(w.submit(5, 1, b"stream 1"))
        assert [(await other.reply()).kind for _ in range(2)] == [w.PARTIAL_RESULT, w.RESULT_PUSH]
        await stranger.close()
        await other.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("limits", "frames"),
    [
        pytest.param(WireLimits(hello_timeout_s=0.05), (), id="20 no hello"),
        pytest.param(WireLimits(hello_timeout_s=0.05), (w.probe(),), id="20 only probes"),
        pytest.param(WireLimits(half_packet_timeout_s=0.05), (w.hello(), w.session_open()[:60]), id="20 half a packet"),
        pytest.param(WireLimits(half_packet_timeout_s=0.05), (w.hello()[:3],), id="20 half a header"),
        pytest.param(WireLimits(idle_timeout_s=0.05), (w.hello(), w.session_open()), id="20 idle"),
    ],
)
async def test_20_own_silence_is_bounded(limits: WireLimits, frames: tuple[bytes, ...]) -> None:
    async with listening(limits) as (listener, handler):
        peer = await RawPeer.connect(listener)
        peer.send(*frames)
        await peer.rest()

        await handler.until(lambda: listener.connection_count == 0)
        assert handler.told in ([], ["opened", "closed"])
        await peer.close()


@pytest.mark.asyncio
async def test_20_a_trickle_does_not_prolong_a_half_packet() -> None:
    async with listening(WireLimits(half_packet_timeout_s=0.1)) as (listener, _):
        peer = await RawPeer.connect(listener)
        peer.send(w.hello())
        await peer.reply()
        started_s = time.monotonic()
        for byte in w.submit(1, 1, b"x" * 2000):
            if peer.is_closed:
                break
            peer.send(bytes([byte]))
            await asyncio.sleep(0.005)

        await peer.rest()
        assert time.monotonic() - started_s < 5
        await peer.close()


@pytest.mark.asyncio
async def test_20_work_in_flight_is_not_idleness() -> None:
    async with listening(WireLimits(idle_timeout_s=0.05, trace_hold_s=0)) as (listener, handler):
        peer = await RawPeer.open(listener, w.submit(5, 1, b"late"))
        assert (await peer.reply()).kind == w.PARTIAL_RESULT
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, handler.release.set)  # four idle times

        assert (await peer.reply()).kind == w.RESULT_PUSH
        await peer.rest()  # and then it is idle
        assert handler.ended == []
        await peer.close()


# Caps


@pytest.mark.asyncio
async def test_connections_are_capped_and_places_return() -> None:
    async with listening(WireLimits(max_connections=2)) as (listener, handler):
        first, second = await RawPeer.open(listener), await RawPeer.open(listener)
        third = await RawPeer.connect(listener)
        assert await third.rest() == b""

        await first.close()
        await handler.until(lambda: listener.connection_count == 1)
        fourth = await RawPeer.open(listener)
        for peer in (second, third, fourth):
            await peer.close()


@pytest.mark.asyncio
async def test_running_out_of_descriptors_is_reported_and_survived() -> None:
    async with listening() as (listener, handler):
        loop = asyncio.get_running_loop()
        reported: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _loop, context: reported.append(context))
        client = socket.socket()
        client.setblocking(False)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        last = os.dup(client.fileno())  # the lowest free number: there is none below the limit now
        resource.setrlimit(resource.RLIMIT_NOFILE, (last, hard))
        try:
            await loop.sock_connect(client, ("127.0.0.1", listener.port))
            await handler.until(lambda: bool(reported))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            os.close(last)
            loop.set_exception_handler(None)

        assert isinstance(reported[0]["exception"], OSError)
        await loop.sock_sendall(client, w.hello())
        async with asyncio.timeout(TIMEOUT_S):  # the loop accepts again after a second
            assert (await loop.sock_recv(client, 4))[:4] == b"NNRP"
        client.close()


@pytest.mark.asyncio
async def test_answers_a_peer_never_reads_are_bounded() -> None:
    limits = WireLimits(max_unread_answer_bytes=100_000, write_high_water_bytes=10_000)
    async with listening(limits) as (listener, handler):
        peer = await RawPeer.open(listener)
        pings = w.frame(w.PING) * 1000
        for _ in range(1000):
            if listener.connection_count == 0:
                break
            peer.send(pings)
            await asyncio.sleep(0)
        await handler.until(lambda: listener.connection_count == 0)
        assert handler.told == ["opened", "closed"]
        await peer.close()


# Backpressure

SMALL = WireLimits(write_high_water_bytes=20_000, trace_hold_s=0, stall_s=0.3, close_grace_s=0.3)


def small_buffers(listener: NnrpListener) -> None:
    """Accepted sockets inherit it: a peer that does not read is then felt after kilobytes, not megabytes."""
    for server in listener._servers:
        for sock in server.sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)


async def every_buffer_full(handler: ScriptedHandler) -> int:
    """Wait until push() waits; how many events went out before."""
    seen = -1
    async with asyncio.timeout(TIMEOUT_S):
        while handler.pushed != seen:
            seen = handler.pushed
            await asyncio.sleep(0.1)
    return seen


@pytest.mark.asyncio
async def test_a_peer_that_never_reads_is_given_up_and_others_are_unharmed() -> None:
    async with listening(SMALL) as (listener, handler):
        small_buffers(listener)
        stalled = await RawPeer.open(listener, w.submit(5, 1, b"flood"))
        stalled.stop_reading()
        other = await RawPeer.open(listener)
        for number in range(1, 4):
            other.send(w.submit(number, number, b"stream 2"))
            assert [(await other.reply()).kind for _ in range(3)] == [w.PARTIAL_RESULT] * 2 + [w.RESULT_PUSH]

        await handler.until(lambda: listener.connection_count == 1)
        assert handler.reasons() == [EndReason.STALLED]
        assert "closed" in handler.told
        await stalled.close()
        await other.close()


@pytest.mark.asyncio
async def test_push_waits_for_a_peer_that_does_not_read_and_cancel_ends_the_wait() -> None:
    async with listening(WireLimits(write_high_water_bytes=20_000, trace_hold_s=0)) as (listener, handler):
        small_buffers(listener)
        peer = await RawPeer.open(listener, w.submit(5, 1, b"flood"))
        peer.stop_reading()
        seen = await every_buffer_full(handler)
        assert 20 <= seen < 10_000

        peer.send(w.control(w.CANCEL, 5, 1))
        await handler.until(lambda: listener.operations_in_flight == 0)
        assert handler.reasons() == [EndReason.CANCELLED]
        assert handler.pushed == seen
        peer.read_on()
        while (reply := await peer.reply()).kind == w.PARTIAL_RESULT:
            pass
        assert reply.kind == w.RESULT_DROP_REASON
        await peer.close()


@pytest.mark.asyncio
async def test_a_slow_reader_is_not_a_stalled_one() -> None:
    async with listening(SMALL) as (listener, handler):
        small_buffers(listener)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", listener.port))
        await loop.sock_sendall(client, w.hello() + w.session_open() + w.submit(5, 1, b"flood"))
        started_s = time.monotonic()
        while time.monotonic() - started_s < 3 * SMALL.stall_s:
            await loop.sock_recv(client, 8192)
            await asyncio.sleep(0.02)

        assert handler.ended == []
        client.close()
        await handler.until(lambda: listener.connection_count == 0)
        assert handler.reasons() == [EndReason.DISCONNECTED]


@pytest.mark.asyncio
async def test_a_flood_to_a_fast_reader_leaves_the_loop_to_others() -> None:
    async with listening() as (listener, handler):
        flooded = await RawPeer.open(listener, w.submit(5, 1, b"flood"))
        reading = asyncio.create_task(flooded.rest())
        other = await RawPeer.open(listener)
        for _ in range(5):
            other.send(w.frame(w.PING))
            assert (await other.reply()).kind == w.PONG

        await handler.until(lambda: handler.pushed > 1000)
        await flooded.close()
        await reading
        await other.close()


@pytest.mark.asyncio
async def test_drain_does_not_wait_for_a_peer_that_does_not_read() -> None:
    async with listening(replace(SMALL, stall_s=60)) as (listener, handler):
        small_buffers(listener)
        peer = await RawPeer.open(listener, w.submit(5, 1, b"flood"))
        peer.stop_reading()
        await every_buffer_full(handler)

        started_s = time.monotonic()
        await listener.drain(0)
        assert listener.connection_count == 0
        assert time.monotonic() - started_s < 5
        await peer.close()


# Sockets


@pytest.mark.asyncio
async def test_socket_options_and_addresses() -> None:
    async with listening() as (listener, handler):
        peer = await RawPeer.open(listener)
        await handler.until(lambda: listener.connection_count == 1)
        (shell,) = listener._connections
        assert shell._transport is not None
        sock = shell._transport.get_extra_info("socket")

        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert listener.addresses == (("127.0.0.1", listener.port),)
        assert listener.port > 0
        host, port = peer.writer.get_extra_info("sockname")
        assert handler.sessions[0].peer == f"{host}:{port}"
        await peer.close()


@pytest.mark.asyncio
async def test_the_shell_serves_any_stream_transport(tmp_path: Path) -> None:
    path = str(tmp_path / "nnrp.sock")
    async with listening() as (listener, handler):
        loop = asyncio.get_running_loop()
        listener.add_server(await loop.create_unix_server(lambda: listener.new_connection("unix"), path))
        peer = RawPeer(*await asyncio.open_unix_connection(path))
        peer.send(w.hello(), w.session_open(), w.submit(5, 1, b"stream 1"))
        expected = [w.SERVER_HELLO_ACK, w.SESSION_OPEN_ACK, w.PARTIAL_RESULT, w.RESULT_PUSH]
        assert [(await peer.reply()).kind for _ in range(4)] == expected
        session: Session = handler.sessions[0]
        assert (session.transport, session.peer) == ("unix", "local")
        assert listener.addresses == (("127.0.0.1", listener.port),)
        await peer.close()


def seam(session: SessionHandle, operation: OperationHandle) -> tuple[Session, Operation]:
    """For the type checker: the handles are what the carrier seam promises."""
    return session, operation


# SDK clients in a process of their own

CLIENT = """
import sys
from tests.support.sdk_client import SdkClient
client = SdkClient.connect(int(sys.argv[1]))
session = client.open_session()
operation = session.submit(sys.argv[2].encode())
next(session.events(operation))
print("ready", flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def sdk_process(listener: NnrpListener, script: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, str(listener.port), script,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.asyncio
async def test_a_killed_client_ends_its_operations() -> None:
    async with listening() as (listener, handler):
        async with sdk_process(listener, "hold") as process:
            process.kill()
            await handler.until(lambda: listener.connection_count == 0)
        assert handler.told == ["opened", "submitted 1001", "ended 1001", "closed"]
        assert handler.reasons() == [EndReason.DISCONNECTED]


@pytest.mark.asyncio
async def test_a_frozen_client_is_given_up() -> None:
    async with listening(SMALL) as (listener, handler):
        small_buffers(listener)
        async with sdk_process(listener, "flood") as process:
            process.send_signal(signal.SIGSTOP)
            await handler.until(lambda: listener.connection_count == 0)
        assert handler.reasons() == [EndReason.STALLED]
