# SPDX-License-Identifier: MIT
"""A bound on each of many waits, with one timer for all of them: a timeout for each token would cost too much."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


class StallWatch:
    """For the current task. close() it when the waits are over."""

    def __init__(self, limit_s: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "a wait is a task's"
        self._task = task
        self._cancelling = task.cancelling()
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._since_s: float | None = None
        self._is_up = False
        self._timer = self._loop.call_later(limit_s, self._look)

    async def wait(self, awaitable: Awaitable[None]) -> None:
        """Raises TimeoutError once it has taken `limit_s`, a little more at most."""
        self._since_s = self._loop.time()
        try:
            await awaitable
        except asyncio.CancelledError:
            if self._is_up and self._task.uncancel() <= self._cancelling:
                raise TimeoutError from None
            raise  # somebody else's
        finally:
            self._since_s = None

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        waited_s = 0.0 if self._since_s is None else self._loop.time() - self._since_s
        if waited_s >= self._limit_s:
            self._is_up = True
            self._task.cancel()
            return
        self._timer = self._loop.call_later(self._limit_s - waited_s, self._look)
