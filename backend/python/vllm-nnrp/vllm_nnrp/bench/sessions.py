# SPDX-License-Identifier: MIT
"""`sessions`: what 1 to 1,000 of them cost, idle and each with a stream of one token a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from vllm_nnrp.bench.grpc_door import GrpcDoor
from vllm_nnrp.bench.lab import Case, Lab, Measured
from vllm_nnrp.bench.machine import resident_mib
from vllm_nnrp.bench.nnrp_door import NnrpDoor
from vllm_nnrp.bench.streaming import measure_stream

COUNTS = (1, 100, 1000)
IDLE = ("nnrp sessions of one connection", "nnrp connections", "grpc channels", "http connections")
ACTIVE = ("nnrp-tcp", "nnrp-tcp-alone", "grpc", "http")
SLOW_S = 1.0  # between two tokens of an active session


class Sessions:
    name = "sessions"
    rounds = 2

    def cases(self, lab: Lab) -> Sequence[Case]:
        counts = (1, 20) if lab.quick else COUNTS
        window_s = lab.size(1.0, 0.5)
        idle = [
            Case(f"idle: {count} {kind}", lambda kind=kind, count=count: _idle(lab, kind, count, window_s))  # type: ignore[misc]
            for count in counts
            for kind in IDLE
        ]
        active = [
            Case(f"active: {count} over {door}", lambda door=door, count=count: _active(lab, door, count, window_s))  # type: ignore[misc]
            for count in counts[1:]
            for door in ACTIVE
        ]
        return [*idle, *active]


async def _idle(lab: Lab, kind: str, count: int, window_s: float) -> Measured:
    server = lab.http if kind.startswith("http") else lab.doors
    before_mib = resident_mib(server.pid)
    door = lab.door("http" if kind.startswith("http") else "grpc" if kind.startswith("grpc") else "nnrp-tcp")
    try:
        if isinstance(door, NnrpDoor):
            is_one = kind == IDLE[0]
            await door.open_sessions(1 if is_one else count, count if is_one else 1)
        elif isinstance(door, GrpcDoor):
            await door.open_connections(count)
        else:
            await door.open(count)
        await asyncio.sleep(0.2)
        begun_s, cpu_s = time.monotonic(), server.cpu_s()
        await asyncio.sleep(window_s)
        cpu_s, duration_s = server.cpu_s() - cpu_s, time.monotonic() - begun_s
        grown_mib = resident_mib(server.pid) - before_mib
    finally:
        await door.close()
    return Measured(
        {"count": count, "server_core_percent": cpu_s / duration_s * 100, "grown_kib_each": grown_mib * 1024 / count}
    )


async def _active(lab: Lab, door: str, count: int, window_s: float) -> Measured:
    return await measure_stream(lab, door, count, window_s, interval_s=SLOW_S, spread_out=True)
