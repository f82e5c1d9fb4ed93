# SPDX-License-Identifier: MIT
"""Places at the engine: bounded, in turn by session, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from chatdelta import RequestTimeout
from nnrp_openai.admission import Admission
from nnrp_openai.profile import ProfileLimits
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio


class Line:
    """Operations that queue for one place; `order` is who got it."""

    def __init__(self) -> None:
        self.admission = Admission(ProfileLimits(max_operations=1, max_queued=8, max_operations_per_session=4))
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def queue(self, name: str, session: int, *, timeout_s: float | None = None) -> None:
        before = self.admission.waiting
        self.tasks[name] = asyncio.create_task(self._run(name, session, timeout_s))
        await until(lambda: self.admission.waiting == before + 1)

    async def _run(self, name: str, session: int, timeout_s: float | None) -> None:
        async with self.admission.slot(session, timeout_s=timeout_s):
            self.order.append(name)
            await asyncio.sleep(0)

    @asynccontextmanager
    async def engine_busy(self) -> AsyncIterator[None]:
        """The place is taken meanwhile; on exit it is free, and everybody has had their turn."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.admission.slot(0, timeout_s=None))
            yield
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert (self.admission.running, self.admission.waiting) == (0, 0)


async def test_sessions_are_served_in_turn() -> None:
    line = Line()
    async with line.engine_busy():
        for name in ("a1", "a2", "a3", "b1", "c1", "c2"):
            await line.queue(name, ord(name[0]))
    assert line.order == ["a1", "b1", "c1", "a2", "c2", "a3"]


async def test_who_gives_up_is_passed_over() -> None:
    line = Line()
    async with line.engine_busy():
        await line.queue("a1", 1)
        await line.queue("b1", 2)
        await line.queue("c1", 3, timeout_s=0.01)
        line.tasks["a1"].cancel()
        with pytest.raises(RequestTimeout):
            await line.tasks["c1"]
    assert line.order == ["b1"]


async def test_a_place_given_to_who_is_cancelled_at_that_moment_goes_on() -> None:
    line = Line()
    async with line.engine_busy():
        await line.queue("a1", 1)
        await line.queue("b1", 2)
        line.admission._running -= 1
        line.admission._hand_on()  # a1 has the place now, and has not run since
        line.tasks["a1"].cancel()
        await until(lambda: line.order == ["b1"])
        line.admission._running += 1


async def test_the_bounds() -> None:
    admission = Admission(ProfileLimits(max_operations=1, max_queued=1, max_operations_per_session=1))
    assert admission.refusal(1, replaces=False) is None
    admission.enter(1)
    refusal = admission.refusal(1, replaces=False)
    assert str(refusal) == "1 operations of this session are in flight"
    assert admission.refusal(1, replaces=True) is None
    admission.enter(2)
    assert str(admission.refusal(3, replaces=False)) == "1 operations are in flight and 1 wait"
    admission.leave(1)
    assert admission.refusal(3, replaces=False) is None
