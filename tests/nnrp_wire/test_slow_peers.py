# SPDX-License-Identifier: MIT
"""Peers that do not read, read slowly, freeze or are killed, on every transport: bounded, and nobody else's trouble."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from nnrp_wire import EndReason, NnrpListener, WireLimits
from tests.nnrp_wire.carriers import NO_HOLD, Carrier, Place, listening
from tests.nnrp_wire.scripted_handler import ScriptedHandler
from tests.support import wire_frames as w
from tests.support.certificates import authority

TIMEOUT_S = 10
SMALL = WireLimits(write_high_water_bytes=20_000, trace_hold_s=0, stall_s=0.3, close_grace_s=0.3)


def small_buffers(listener: NnrpListener) -> None:
    """Accepted sockets inherit it: a peer that does not read is then felt after kilobytes, not megabytes."""
    for acceptor in listener._acceptors:
        assert acceptor._binding is not None
        for sock in acceptor._binding.sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)


@asynccontextmanager
async def cramped(carrier: Carrier, limits: WireLimits = SMALL) -> AsyncIterator[Place]:
    """A listener whose connections have small buffers."""
    async with listening(carrier, limits) as place:
        small_buffers(place.listener)
        yield place


async def every_buffer_full(handler: ScriptedHandler) -> int:
    """Wait until push() waits; how many events went out before."""
    seen = -1
    async with asyncio.timeout(TIMEOUT_S):
        while handler.pushed != seen:
            seen = handler.pushed
            await asyncio.sleep(0.1)
    return seen


@pytest.mark.asyncio
async def test_a_peer_that_never_reads_is_given_up_and_others_are_unharmed(carrier: Carrier) -> None:
    async with cramped(carrier) as place:
        stalled = await place.opened(w.submit(5, 1, b"flood"))
        stalled.stop_reading()
        other = await place.opened()
        for number in range(1, 4):
            other.send(w.submit(number, number, b"stream 2"))
            assert await other.replies(3) == [w.PARTIAL_RESULT] * 2 + [w.RESULT_PUSH]

        await place.handler.until(lambda: place.listener.connection_count == 1)
        assert place.handler.reasons() == [EndReason.STALLED]
        assert "closed" in place.handler.told
        await stalled.close()
        await other.close()


@pytest.mark.asyncio
async def test_push_waits_for_a_peer_that_does_not_read_and_cancel_ends_the_wait(carrier: Carrier) -> None:
    async with cramped(carrier, WireLimits(write_high_water_bytes=20_000, trace_hold_s=0)) as place:
        peer = await place.opened(w.submit(5, 1, b"flood"))
        peer.stop_reading()
        seen = await every_buffer_full(place.handler)
        assert 10 <= seen < 10_000

        peer.send(w.control(w.CANCEL, 5, 1))
        await place.handler.until(lambda: place.listener.operations_in_flight == 0)
        assert place.handler.reasons() == [EndReason.CANCELLED]
        assert place.handler.pushed == seen
        peer.read_on()
        while (reply := await peer.reply()).kind == w.PARTIAL_RESULT:
            pass
        assert reply.kind == w.RESULT_DROP_REASON
        await peer.close()


@pytest.mark.asyncio
async def test_a_slow_reader_is_not_a_stalled_one(carrier: Carrier) -> None:
    async with cramped(carrier) as place:
        peer = await place.opened(w.submit(5, 1, b"flood"))
        started_s = time.monotonic()
        while time.monotonic() - started_s < 3 * SMALL.stall_s:
            await peer.replies(50)  # a reader takes up to 256 KiB at once, and nothing more while it has them
            await asyncio.sleep(0.01)

        assert place.handler.ended == []
        await peer.close()
        await place.handler.until(lambda: place.listener.connection_count == 0)
        assert place.handler.reasons() == [EndReason.DISCONNECTED]


@pytest.mark.asyncio
async def test_a_flood_to_a_fast_reader_leaves_the_loop_to_others(carrier: Carrier) -> None:
    async with listening(carrier) as place:
        flooded = await place.opened(w.submit(5, 1, b"flood"))
        reading = asyncio.create_task(flooded.rest())
        other = await place.opened()
        for _ in range(5):
            other.send(w.frame(w.PING))
            assert (await other.reply()).kind == w.PONG

        await place.handler.until(lambda: place.handler.pushed > 1000)
        await flooded.close()
        await reading
        await other.close()


@pytest.mark.asyncio
async def test_drain_does_not_wait_for_a_peer_that_does_not_read(carrier: Carrier) -> None:
    async with cramped(carrier, replace(SMALL, stall_s=60)) as place:
        peer = await place.opened(w.submit(5, 1, b"flood"))
        peer.stop_reading()
        await every_buffer_full(place.handler)

        started_s = time.monotonic()
        await place.listener.drain(0)
        assert place.listener.connection_count == 0
        assert time.monotonic() - started_s < 5
        await peer.close()


@pytest.mark.asyncio
async def test_answers_a_peer_never_reads_are_bounded(stream_carrier: Carrier) -> None:
    limits = WireLimits(max_unread_answer_bytes=100_000, write_high_water_bytes=10_000)
    async with cramped(stream_carrier, limits) as place:
        peer = await place.opened()
        peer.stop_reading()
        for _ in range(1000):
            if place.listener.connection_count == 0:
                break
            peer.send(*[w.frame(w.PING)] * 100)
            await asyncio.sleep(0)
        await place.handler.until(lambda: place.listener.connection_count == 0)
        assert place.handler.told == ["opened", "closed"]
        await peer.close()


# SDK clients in a process of their own

CLIENT = """
import sys
from tests.support.sdk_client import SdkClient
client = SdkClient.connect_url(sys.argv[1], bytes.fromhex(sys.argv[3]) or None)
session = client.open_session()
operation = session.submit(sys.argv[2].encode())
next(session.events(operation))
print("ready", flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def sdk_process(place: Place, script: str) -> AsyncIterator[asyncio.subprocess.Process]:
    trust = authority().der.hex() if place.carrier.is_encrypted else ""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, place.carrier.url(place.listener), script, trust,
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
async def test_a_killed_client_ends_its_operations(slow_carrier: Carrier) -> None:
    limits = replace(NO_HOLD, quic_idle_s=1.0, quic_keep_alive_s=0.2)  # no system tells of a vanished QUIC peer
    async with listening(slow_carrier, limits) as place:
        async with sdk_process(place, "hold") as process:
            process.kill()
            await place.handler.until(lambda: place.listener.connection_count == 0)
        assert place.handler.told == ["opened", "submitted 1001", "ended 1001", "closed"]
        assert place.handler.reasons() == [EndReason.DISCONNECTED]


@pytest.mark.asyncio
async def test_a_frozen_client_is_given_up(slow_carrier: Carrier) -> None:
    async with cramped(slow_carrier) as place:
        async with sdk_process(place, "flood") as process:
            process.send_signal(signal.SIGSTOP)
            await place.handler.until(lambda: place.listener.connection_count == 0)
        assert place.handler.reasons() == [EndReason.STALLED]
