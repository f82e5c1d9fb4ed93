# SPDX-License-Identifier: MIT
"""Who may use the engine: a bounded number at once, a bounded number waiting, and sessions served in turn."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chatdelta import Overloaded, RequestTimeout
from nnrp_openai.profile import ProfileLimits


class Admission:
    """Counts operations from their submit to their end; `slot()` is the way to the engine.

    Who waits is served session by session, so that one session's many operations cannot starve another's single one;
    within a session the first comes first.
    """

    def __init__(self, limits: ProfileLimits) -> None:
        self._limits = limits
        self._of_session: Counter[int] = Counter()  # operations admitted, by session serial
        self._running = 0
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}  # by session serial, in the order of turns

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    def refusal(self, session: int, *, replaces: bool) -> Overloaded | None:
        """Why an operation cannot be taken on; the replacement of a superseded one has that one's place."""
        limits = self._limits
        text = None
        if not replaces and self._of_session[session] >= limits.max_operations_per_session:
            text = f"{limits.max_operations_per_session} operations of this session are in flight"
        elif not replaces and self._of_session.total() >= limits.max_operations + limits.max_queued:
            text = f"{limits.max_operations} operations are in flight and {limits.max_queued} wait"
        return None if text is None else Overloaded(text, retry_after_ms=limits.retry_after_ms)

    def enter(self, session: int) -> None:
        self._of_session[session] += 1

    def leave(self, session: int) -> None:
        self._of_session[session] -= 1
        if not self._of_session[session]:
            del self._of_session[session]

    @asynccontextmanager
    async def slot(self, session: int, *, timeout_s: float | None) -> AsyncIterator[None]:
        """Wait for the session's turn, then hold one of the places. Raises RequestTimeout."""
        if self._running < self._limits.max_operations:
            self._running += 1
        else:
            await self._turn(session, timeout_s)
        try:
            yield
        finally:
            self._running -= 1
            self._hand_on()

    async def _turn(self, session: int, timeout_s: float | None) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(session, deque())
        queue.append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except TimeoutError as exc:
            self._give_up(session, turn)
            raise RequestTimeout("the request did not get its turn in its time") from exc
        except asyncio.CancelledError:
            self._give_up(session, turn)
            raise

    def _give_up(self, session: int, turn: asyncio.Future[None]) -> None:
        """A turn that came just now goes to the next; one that did not leaves the queue."""
        if turn.done() and not turn.cancelled():
            self._running -= 1
            self._hand_on()
            return
        queue = self._waiting[session]
        queue.remove(turn)
        if not queue:
            del self._waiting[session]

    def _hand_on(self) -> None:
        """Give a free place to the session whose turn it is; it goes to the end of the line."""
        if not self._waiting or self._running >= self._limits.max_operations:
            return
        session = next(iter(self._waiting))
        queue = self._waiting.pop(session)
        turn = queue.popleft()
        if queue:
            self._waiting[session] = queue
        self._running += 1
        turn.set_result(None)
