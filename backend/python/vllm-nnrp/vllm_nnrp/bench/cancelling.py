# SPDX-License-Identifier: MIT
"""`cancel`: from a client's cancel to the engine's abort and to the last word, one stream after the other of 64."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from vllm_nnrp.bench.asking import all_started
from vllm_nnrp.bench.figures import spread
from vllm_nnrp.bench.lab import Case, Lab, Measured

DOORS = ("nnrp-tcp", "grpc", "http")
STREAMS = 64
PAUSE_S = 0.005  # between two cancels, so that each meets a server with work and not the others' clean-up
SETTLE_S = 0.1
LATE_S = 0.3  # how long to look for events after the last word
CANCELS = 1000  # in all, over the rounds
END_S = 20.0
MAX_TOKENS = 2000


class Cancel:
    name = "cancel"
    rounds = 5

    def cases(self, lab: Lab) -> Sequence[Case]:
        batches = int(lab.size(-(-CANCELS // self.rounds // STREAMS), 1))
        return [Case(door, lambda door=door: _measure(lab, door, batches)) for door in DOORS]  # type: ignore[misc]


async def _measure(lab: Lab, door_name: str, batches: int) -> Measured:
    """`abort_ms` to the engine's abort; `end_ms` to the last event, which gRPC and HTTP clients do not get."""
    server = lab.server(door_name)
    to_abort: list[float] = []
    to_end: list[float] = []
    late = 0
    for _ in range(batches):
        await server.control("forget")
        async with lab.opened(door_name, STREAMS) as door:
            streams = [door.ask(ask) for ask in lab.asks(STREAMS, MAX_TOKENS)]
            await all_started(streams)
            await asyncio.sleep(SETTLE_S)
            cancelled = {}
            for stream in streams:
                await asyncio.sleep(PAUSE_S)
                cancelled[stream.seed] = time.monotonic()
                door.cancel(stream)
            async with asyncio.timeout(END_S):
                for stream in streams:
                    await stream.ended.wait()
                await server.control("all_aborted", count=STREAMS)
            await asyncio.sleep(LATE_S)
            notes = await server.control("take")
            late += sum(stream.late for stream in streams) + notes["after_abort"]
            to_end += [(stream.ended_s - cancelled[stream.seed]) * 1e3 for stream in streams]
            to_abort += [(notes["aborted"][str(seed)] - at) * 1e3 for seed, at in cancelled.items()]
    abort, end = spread(to_abort), spread(to_end)
    values = {
        "cancels": len(to_abort),
        "late_events": late,
        "abort_p50_ms": abort.p50,
        "abort_p95_ms": abort.p95,
        "abort_p99_ms": abort.p99,
        "abort_max_ms": abort.max,
        "end_p50_ms": end.p50,
        "end_p95_ms": end.p95,
        "end_p99_ms": end.p99,
    }
    return Measured(values, {"abort_ms": to_abort, "end_ms": to_end})
