# SPDX-License-Identifier: MIT
"""What a scenario works with, and the shape of one: cases, each measured once a round."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from vllm_nnrp.addresses import parse_address
from vllm_nnrp.bench.asking import Ask, Door, all_ended
from vllm_nnrp.bench.children import Server
from vllm_nnrp.bench.grpc_door import GrpcDoor
from vllm_nnrp.bench.http_door import HttpDoor
from vllm_nnrp.bench.nnrp_door import NnrpDoor

INTERVAL_S = 0.02  # between two tokens of a stream: 50 a second
# What every event with text has once; a real model's texts do not tell their tokens.
NNRP_EVENT, HTTP_EVENT = b'"delta":"', b'"delta":{"content":"'


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one case in one round. Names carry their units; `samples` are thinned before they are kept."""

    values: dict[str, float]
    samples: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    measure: Callable[[], Awaitable[Measured]]


class Scenario(Protocol):
    """`rounds` are of the full form. A quick run makes one round of small ones."""

    name: str
    rounds: int

    def cases(self, lab: Lab) -> Sequence[Case]:
        """In the order of the first round; every round begins with another one."""


@dataclass(slots=True)
class Lab:
    """The servers under test. `http` is vLLM's; on a real engine it is in the process of `doors`."""

    doors: Server
    http: Server
    http_address: str
    model: str
    word: bytes = b""  # the text of every token; of scripted servers
    quick: bool = False
    seeds: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def door(self, name: str) -> Door:
        """`grpc`, `http`, `nnrp-tcp`, `nnrp-ipc`, or `nnrp-tcp-alone`: a connection and a session for each stream."""
        tcp, unix = self.doors.nnrp
        event = self.word or NNRP_EVENT
        match name:
            case "grpc":
                return GrpcDoor(parse_address(self.doors.grpc))
            case "http":
                return HttpDoor(parse_address(self.http_address), self.word or HTTP_EVENT, self.model)
            case "nnrp-tcp":
                return NnrpDoor(name, tcp, event, self.model)
            case "nnrp-tcp-alone":
                return NnrpDoor(name, tcp, event, self.model, each_alone=True)
            case "nnrp-ipc":
                return NnrpDoor(name, unix, event, self.model)
        raise ValueError(name)

    def server(self, door: str) -> Server:
        return self.http if door == "http" else self.doors

    def asks(self, count: int, max_tokens: int, *, tools: bool = True) -> list[Ask]:
        return [Ask(next(self.seeds), max_tokens, tools=tools) for _ in range(count)]

    def size(self, full: float, quick: float) -> float:
        return quick if self.quick else full

    @asynccontextmanager
    async def opened(self, name: str, streams: int) -> AsyncIterator[Door]:
        door = self.door(name)
        await door.open(streams)
        try:
            yield door
        finally:
            await door.close()

    async def warm_up(self) -> None:
        """Imports, caches and first connections are nobody's latency."""
        for name in ("grpc", "http", "nnrp-tcp", "nnrp-ipc"):
            async with self.opened(name, 8) as door:
                await all_ended([door.ask(ask) for ask in self.asks(8, 50)])


def rotated(cases: Sequence[Case], by: int) -> list[Case]:
    """So that no case always has the same neighbour before it."""
    start = by % len(cases) if cases else 0
    return [*cases[start:], *cases[:start]]
