# SPDX-License-Identifier: MIT
"""`stream`: from the engine's output to its receipt by a client, and the server's CPU for it, at 50 tokens a second."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_nnrp.bench.asking import ANSWER_S, Stream, all_started, refuse_failed
from vllm_nnrp.bench.figures import spread
from vllm_nnrp.bench.lab import INTERVAL_S, Case, Lab, Measured

DOORS = ("nnrp-tcp", "nnrp-ipc", "grpc", "http")
STREAMS = (1, 16, 64, 256)
ALONE = "nnrp-tcp-alone"
ALONE_STREAMS = 64
SETTLE_S = 0.4  # after the first token of the last stream
MAX_TOKENS = 10_000  # more than anybody waits for: closing its door ends a stream


class StreamLatency:
    name = "stream"
    rounds = 5

    def cases(self, lab: Lab) -> Sequence[Case]:
        counts = (1, 16) if lab.quick else STREAMS
        window_s = lab.size(1.2, 0.3)
        pairs = [(door, count) for count in counts for door in DOORS]
        if not lab.quick:
            pairs += [(ALONE, ALONE_STREAMS)]
        return [
            Case(f"{door} x{count}", lambda door=door, count=count: measure_stream(lab, door, count, window_s))  # type: ignore[misc]
            for door, count in pairs
        ]


async def measure_stream(
    lab: Lab, door_name: str, count: int, window_s: float, *, interval_s: float = INTERVAL_S, spread_out: bool = False
) -> Measured:
    """Latency of every token emitted in the window, in ms, and the server's CPU within it."""
    server = lab.server(door_name)
    await server.control("pace", interval_s=interval_s, spread=spread_out)
    await server.control("forget")
    async with lab.opened(door_name, count) as door:
        streams = [door.ask(ask) for ask in lab.asks(count, MAX_TOKENS)]
        await all_started(streams)
        await asyncio.sleep(SETTLE_S)
        begun_s, cpu_s, own_s = time.monotonic(), server.cpu_s(), time.process_time()
        await asyncio.sleep(window_s)
        ended_s = time.monotonic()
        cpu_s, own_s = server.cpu_s() - cpu_s, time.process_time() - own_s
        notes = await server.control("take")
        async with asyncio.timeout(ANSWER_S):  # late tokens count, too
            for stream in streams:
                await stream.holds(bisect_left(notes["emitted"][str(stream.seed)], ended_s))
        refuse_failed(streams)
    await server.control("all_aborted", count=count)
    await server.control("pace", interval_s=INTERVAL_S)
    latencies, events, emitted = _latencies(streams, notes["emitted"], begun_s, ended_s)
    found = spread(latencies)
    duration_s = ended_s - begun_s
    return Measured(
        {
            "streams": count,
            "tokens": emitted,
            "events": events,
            "p50_ms": found.p50,
            "p95_ms": found.p95,
            "p99_ms": found.p99,
            "max_ms": found.max,
            "server_cpu_us_per_token": cpu_s / emitted * 1e6,
            "server_core_percent": cpu_s / duration_s * 100,
            "client_core_percent": own_s / duration_s * 100,
        },
        {"latency_ms": latencies},
    )


def _latencies(
    streams: Sequence[Stream], emitted: Mapping[str, Any], begun_s: float, ended_s: float
) -> tuple[list[float], int, int]:
    """Milliseconds of each token emitted within the window; events received and tokens emitted in it."""
    latencies: list[float] = []
    events = 0
    for stream in streams:
        times = emitted[str(stream.seed)]
        at, last = bisect_left(times, begun_s), bisect_left(times, ended_s)
        position = 0
        for received_s, tokens in stream.receipts:
            first, position = position, position + tokens
            inside = range(max(first, at), min(position, last))
            latencies += [(received_s - times[index]) * 1e3 for index in inside]
            events += bool(inside)
    return latencies, events, len(latencies)
