# SPDX-License-Identifier: MIT
"""The load: clients that come, ask, end some of their questions early in every way there is, and go."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.soak.connections import DRAIN_MS, ENDS, Connection, Session, Target
from tests.soak.operations import Operation, Wrong
from tests.soak.questions import Question

ENDED_SHARE = 0.25  # of the operations; some are over before their end comes
# What ends more than its own operation is rarer, so that the share holds.
WAYS = (*[way for way in ENDS if way != "session cancel"] * 3, *["supersede", "early deadline"] * 3,
        "session cancel", "session close", "session drain", "drop")  # fmt: skip
UNFRIENDLY_SHARE = 0.3  # of the connections: they end without a word
MAX_TRIGGER = 40
Ask = Callable[[random.Random], Question]


@dataclass
class Totals:
    """What was done, and how it came out."""

    operations: int = 0
    events: int = 0
    asked_to_end: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    connections: Counter[str] = field(default_factory=Counter)
    killed: int = 0

    def add(self, operation: Operation) -> None:
        self.operations += 1
        self.events += len(operation.frames)
        self.outcomes[operation.outcome()] += 1

    def lines(self, seconds: float) -> list[str]:
        ended = self.asked_to_end.total()
        return [
            f"{self.operations} operations, {self.events} events ({self.events / seconds:.0f}/s), all in order",
            f"ended early {ended} ({ended / max(1, self.operations):.0%}): {_shown(self.asked_to_end)}",
            f"outcomes, one each: {_shown(self.outcomes)}",
            f"connections {self.connections.total()} ({self.killed} killed): {_shown(self.connections)}",
        ]


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))


@dataclass
class Load:
    """`width` connections at once with at most `depth` operations each. Equal seeds ask equal questions."""

    targets: Sequence[Target]
    ask: Ask
    seed: int
    width: int
    depth: int
    patience_s: float = 60.0  # with an operation; two busy cores
    totals: Totals = field(default_factory=Totals)

    async def run(self, seconds: float) -> None:
        """Raises Wrong, in a group, for the first thing that the server does wrong."""
        end_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.width):
                tasks.create_task(self._client(random.Random(f"{self.seed}/{number}"), end_s))

    async def _client(self, chance: random.Random, end_s: float) -> None:
        """One connection after the other."""
        while time.monotonic() < end_s:
            target = chance.choice(self.targets)
            self.totals.connections[target.carrier.name] += 1
            async with _reading(await Connection.opened(target, self.patience_s)) as connection:
                await Life(self, chance, connection).live()


@asynccontextmanager
async def _reading(connection: Connection) -> AsyncIterator[Connection]:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(connection.read())
        try:
            yield connection
        finally:
            await connection.drop()


class Life:
    """One connection from its first session to its end."""

    def __init__(self, load: Load, chance: random.Random, connection: Connection) -> None:
        self._load = load
        self._chance = chance
        self._connection = connection
        self._sessions: list[Session] = []
        self._places = asyncio.Semaphore(load.depth)

    async def live(self) -> None:
        chance = self._chance
        is_unfriendly = chance.random() < UNFRIENDLY_SHARE
        for _ in range(chance.randint(1, 3)):
            self._sessions.append(await self._connection.open_session())
        operations = chance.randint(1, 4 * self._load.depth)
        killed_at = chance.randrange(operations) if is_unfriendly else None
        async with asyncio.TaskGroup() as tasks:
            for number in range(operations):
                await self._places.acquire()
                if self._connection.is_gone:
                    break
                if number == killed_at:
                    await self._kill()
                    break
                tasks.create_task(self._operation(await self._session()))
        if not self._connection.is_gone:
            await self._connection.close()

    async def _kill(self) -> None:
        self._load.totals.killed += 1
        await self._connection.drop()

    async def _session(self) -> Session:
        """One that is open; a new one where all are closing."""
        usable = [session for session in self._sessions if not session.is_closing]
        if not usable:
            usable = [await self._connection.open_session()]
            self._sessions += usable
        session = self._chance.choice(usable)
        if self._chance.random() < 0.1:
            self._connection.trace(session, self._chance.randrange(1, 2**63))
        return session

    def _new_operation(self, session: Session) -> Operation:
        chance = self._chance
        policy = {name: True for name in ("diagnostics", "progress") if chance.random() < 0.1}
        is_stream = chance.random() < 0.75
        trigger = chance.choice((0, 1, chance.randint(1, MAX_TRIGGER))) if is_stream else 0
        return Operation(self._load.ask(chance), next(session.numbers), is_stream, policy, trigger)

    async def _operation(self, session: Session) -> None:
        try:
            if session.is_closing:  # since it was chosen; from here to the submit nothing waits
                return
            operation = self._new_operation(session)
            way = self._chance.choice(WAYS) if self._chance.random() < ENDED_SHARE else None
            if way == "early deadline":
                self._count(way)
                self._connection.early_deadline(session, operation, self._chance.uniform(0.0, 0.5))
            self._connection.submit(session, operation)
            if way not in (None, "early deadline"):
                await self._end(str(way), session, operation)
            elif self._chance.random() < 0.05:
                await self._hold(session, operation)
            await self._judge(operation)
        finally:
            self._places.release()

    async def _judge(self, operation: Operation) -> None:
        """When it is over. Raises Wrong."""
        try:
            async with asyncio.timeout(self._load.patience_s):
                await operation.over.wait()
        except TimeoutError as exc:
            raise Wrong(f"{operation}, {len(operation.frames)} frames: not over in time") from exc
        self._load.totals.add(operation)

    def _count(self, way: str) -> None:
        self._load.totals.asked_to_end[way] += 1

    async def _hold(self, session: Session, operation: Operation) -> None:
        """Take the session's credit away for a moment."""
        await operation.reached.wait()
        if not session.is_closing and not self._connection.is_gone:
            self._connection.pause(session)
            await asyncio.sleep(self._chance.uniform(0.0, 0.1))
        if not session.is_closing and not self._connection.is_gone:
            self._connection.go_on(session)

    async def _end(self, way: str, session: Session, operation: Operation) -> None:
        if operation.trigger:
            await operation.reached.wait()
        else:
            await asyncio.sleep(self._chance.uniform(0.0, 0.2))
        if operation.is_over or session.is_closing or self._connection.is_gone:
            return
        self._count(way)
        match way:
            case "drop":
                await self._kill()
            case "session close":
                self._connection.close_session(session)
            case "session drain":
                self._connection.close_session(session, drain_ms=DRAIN_MS)
            case "supersede":
                replacement = self._new_operation(session)
                self._connection.supersede(session, operation, replacement.frame_id)
                self._connection.submit(session, replacement)
                await self._judge(replacement)
            case _:
                self._connection.end(way, session, operation)
