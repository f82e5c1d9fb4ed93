# SPDX-License-Identifier: MIT
"""`payload`: requests of 1 KiB to 16 MiB, from the first byte to the end of an answer of one token."""

from __future__ import annotations

import time
from collections.abc import Sequence

from vllm_nnrp.bench.asking import Ask, Stream, all_ended
from vllm_nnrp.bench.figures import spread
from vllm_nnrp.bench.lab import INTERVAL_S, Case, Lab, Measured

DOORS = ("nnrp-tcp", "grpc", "http")
KIB = 1024
SIZES = (KIB, 64 * KIB, KIB**2, 4 * KIB**2, 16 * KIB**2)
NNRP_MAX_BYTES = 8 * KIB**2  # of a request, by the profile's limits
BYTES_PER_ROUND = 16 * KIB**2
MAX_REPEATS = 20


class Payload:
    """The bytes are in a field that no side renders: it is the wire and the JSON that are measured."""

    name = "payload"
    rounds = 5

    def cases(self, lab: Lab) -> Sequence[Case]:
        sizes = SIZES[:3] if lab.quick else SIZES
        return [
            Case(f"{door} {size // KIB} KiB", lambda door=door, size=size: _measure(lab, door, size))  # type: ignore[misc]
            for size in sizes
            for door in DOORS
            if not (door.startswith("nnrp") and size > NNRP_MAX_BYTES)
        ]


async def _measure(lab: Lab, door_name: str, size: int) -> Measured:
    server = lab.server(door_name)
    repeats = int(lab.size(min(MAX_REPEATS, BYTES_PER_ROUND // size), 2))
    await server.control("pace", interval_s=0)
    taken: list[float] = []
    async with lab.opened(door_name, repeats) as door:
        begun_cpu_s = server.cpu_s()
        for _ in range(repeats):
            begun_s = time.monotonic()
            stream: Stream = door.ask(Ask(next(lab.seeds), 1, tools=False, padding_bytes=size))
            await all_ended([stream])
            taken.append((stream.ended_s - begun_s) * 1e3)
        cpu_s = server.cpu_s() - begun_cpu_s
    await server.control("pace", interval_s=INTERVAL_S)
    found = spread(taken)
    return Measured(
        {
            "bytes": size,
            "requests": repeats,
            "p50_ms": found.p50,
            "p95_ms": found.p95,
            "server_cpu_ms_per_request": cpu_s / repeats * 1e3,
        },
        {"request_ms": taken},
    )
