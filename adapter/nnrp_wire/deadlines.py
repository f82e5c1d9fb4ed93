# SPDX-License-Identifier: MIT
"""Timers without a clock: the core sets them, whoever knows the time asks which are due."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class Now(NamedTuple):
    """One instant on both clocks: monotonic for timers, unix for what peers name in their frames."""

    monotonic_s: float
    unix_s: float

    def at_unix_ms(self, unix_ms: int) -> float:
        """The monotonic time of a peer's wall-clock time."""
        return self.monotonic_s + unix_ms / 1000 - self.unix_s


class Timers(Generic[K]):
    """One time per key, the earliest first; setting and cancelling are O(log n)."""

    def __init__(self) -> None:
        self._due_s: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serial = count()

    def __len__(self) -> int:
        return len(self._due_s)

    def set(self, key: K, due_s: float) -> None:
        self._due_s[key] = due_s
        heapq.heappush(self._heap, (due_s, next(self._serial), key))
        # Stale entries stay in the heap until their time; far deadlines of finished operations must not pile up.
        if len(self._heap) > 2 * len(self._due_s) + 64:
            self._heap = [(due, next(self._serial), key) for key, due in self._due_s.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: K) -> None:
        self._due_s.pop(key, None)

    def next_due_s(self) -> float | None:
        while self._heap and self._due_s.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_s: float) -> list[K]:
        """Keys whose time has come, earliest first; they are no longer set."""
        due: list[K] = []
        while (first_s := self.next_due_s()) is not None and first_s <= now_s:
            key = heapq.heappop(self._heap)[2]
            del self._due_s[key]
            due.append(key)
        return due
