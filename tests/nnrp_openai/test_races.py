# SPDX-License-Identifier: MIT
"""Everything that can end an operation, against everything else, over a real connection: one terminal, nothing late."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import combinations

import pytest

from chatdelta import GenerationRequest, Outcome
from chatdelta.testing import Step, Wait, text_script
from nnrp_wire import NnrpListener, WireLimits, open_listener
from tests.nnrp_openai.fake_carrier import envelope, submit_packet
from tests.nnrp_openai.serving import Served, serving
from tests.support import wire_frames as w
from tests.support.raw_peer import RawPeer
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio

LIMITS = WireLimits(trace_hold_s=0, close_grace_s=0.5)
TERMINALS = (w.RESULT_PUSH, w.RESULT_DROP_REASON)
AFTER_ITS_TERMINAL = (w.TRACE_CONTEXT, w.RETRY_AFTER, w.SESSION_CLOSE_ACK, w.PONG, w.ERROR_RECOVERABLE)
SCHEDULES = 1000


@dataclass
class Scene:
    """One peer with session 1 open; its operations say one thing, then wait for `gate` before they finish."""

    served: Served
    listener: NnrpListener
    peer: RawPeer
    gate: asyncio.Event

    def submit(self, operation: int, *, stream: bool = True) -> None:
        body = submit_packet(envelope({"stream": stream})).body
        self.peer.send(w.submit(operation, operation, body))

    async def rest(self) -> list[w.Reply]:
        """Everything until the connection ends, or until the peer's last frame has been answered."""
        replies: list[w.Reply] = []
        self.peer.send(w.frame(w.PING, session=0))
        while True:
            try:
                reply = await self.peer.reply()
            except (asyncio.IncompleteReadError, ConnectionError):
                return replies
            if reply.kind == w.PONG:
                return replies
            replies.append(reply)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    gate = asyncio.Event()

    def script(_request: GenerationRequest) -> list[Step]:
        first, *others = text_script("a", "b")
        return [first, Wait(gate), *others]

    async with serving(script) as served:
        listener = await open_listener(served.handler, limits=LIMITS)
        peer = await (await RawPeer.tcp(listener.port)).opened()
        try:
            yield Scene(served, listener, peer, gate)
        finally:
            await peer.close()
            await listener.close()


# What can end operation 5

Act = Callable[[Scene], None]


def unix_ms(seconds: float = 0.0) -> int:
    return int((time.time() + seconds) * 1000)


def shut_down(scene: Scene) -> None:
    scene.served.handler.begin_drain()
    asyncio.get_running_loop().create_task(scene.listener.close())


ACTS: dict[str, Act] = {
    "finish": lambda scene: scene.gate.set(),
    "cancel": lambda scene: scene.peer.send(w.control(w.CANCEL, 5, 5)),
    "abort": lambda scene: scene.peer.send(w.control(w.ABORT, 5, 5)),
    "frame cancel": lambda scene: scene.peer.send(w.frame_cancel(5)),
    "session cancel": lambda scene: scene.peer.send(w.control(w.CANCEL, 0, 0)),
    "supersede": lambda scene: scene.peer.send(w.supersede(5, 6, 5)),
    "deadline": lambda scene: scene.peer.send(w.schedule(w.DEADLINE, 5, 5, unix_ms())),
    "close": lambda scene: scene.peer.send(w.session_close()),
    "shutdown": shut_down,
    "engine death": lambda scene: scene.served.engine.kill(),
    "disconnect": lambda scene: scene.peer.writer.transport.abort(),
}


async def settled(scene: Scene) -> list[w.Reply]:
    replies = await scene.rest()
    handler, engine = scene.served.handler, scene.served.engine
    await until(lambda: not handler._tasks and not engine.running)  # the last word comes after the engine is let go
    assert handler.in_flight == 0
    return replies + ([] if scene.peer.is_closed else await scene.rest())


def check(replies: list[w.Reply], operation: int, *, may_be_lost: bool) -> int | None:
    """The kind of the one terminal; None where the connection was cut before it."""
    own = [reply for reply in replies if reply.frame_id == operation]
    terminals = [at for at, reply in enumerate(own) if reply.kind in TERMINALS]
    assert len(terminals) == 1 or (may_be_lost and not terminals), [reply.kind for reply in own]
    if not terminals:
        return None
    late = [reply.kind for reply in own[terminals[0] + 1 :] if reply.kind not in AFTER_ITS_TERMINAL]
    assert late == []
    return own[terminals[0]].kind


async def race(pair: tuple[str, str], between: Callable[[], Awaitable[object]]) -> None:
    first, second = (ACTS[name] for name in pair)
    async with scene() as place:
        place.submit(5)
        assert (await place.peer.reply()).kind == w.PARTIAL_RESULT
        first(place)
        await between()
        second(place)
        check(await settled(place), 5, may_be_lost="disconnect" in pair)
        (record,) = place.served.records.all
        if not {"finish", "engine death"} & set(pair):
            assert record.outcome is Outcome.CANCELLED
            assert place.served.engine.aborted == [place.served.engine.requests[0].request_id]


async def at_once() -> None:
    """Both go before anything of them is handled."""


async def one_turn() -> None:
    await asyncio.sleep(0)


async def some_turns() -> None:
    """Enough for the first to have all of its effect."""
    for _ in range(50):
        await asyncio.sleep(0)


PAIRS = [pair for names in combinations(ACTS, 2) for pair in (names, names[::-1])]


@pytest.mark.parametrize("between", [at_once, one_turn, some_turns])
@pytest.mark.parametrize("pair", PAIRS, ids=" then ".join)
async def test_two_ends_give_one_terminal(pair: tuple[str, str], between: Callable[[], Awaitable[object]]) -> None:
    await race(pair, between)


async def test_a_thousand_random_schedules() -> None:
    """Several operations on one connection, ended in random order at random moments, for random reasons."""
    chance = random.Random(2026)
    kinds: set[int | None] = set()
    lasting = {"shutdown", "engine death", "disconnect", "close", "session cancel"}
    single = {name: act for name, act in ACTS.items() if name not in lasting}
    done = 0
    while done < SCHEDULES:
        async with scene() as place:
            if chance.random() < 0.5:
                place.gate.set()
            for number in range(1, 21):
                operation = number + 10
                place.submit(operation, stream=chance.random() < 0.8)
                for _ in range(chance.choice((0, 1, 4, 20))):
                    await asyncio.sleep(0)
                for name in chance.sample(sorted(single), 2):
                    _aim(place, name, operation)
                    for _ in range(chance.randrange(3)):
                        await asyncio.sleep(0)
                if chance.random() < 0.2:
                    place.gate.set()
            place.gate.set()
            replies = await settled(place)
            kinds |= {check(replies, number + 10, may_be_lost=False) for number in range(1, 21)}
            assert len(place.served.records.all) <= 20
        done += 20
    assert kinds == set(TERMINALS)


def _aim(place: Scene, name: str, operation: int) -> None:
    """One of ACTS, at another operation."""
    frames = {
        "cancel": w.control(w.CANCEL, operation, operation),
        "abort": w.control(w.ABORT, operation, operation),
        "frame cancel": w.frame_cancel(operation),
        "supersede": w.supersede(operation, operation + 1000, operation),
        "deadline": w.schedule(w.DEADLINE, operation, operation, unix_ms(0.0005)),
    }
    if name == "finish":
        place.gate.set()
    else:
        place.peer.send(frames[name])
