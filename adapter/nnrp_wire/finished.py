# SPDX-License-Identifier: MIT
"""Ids of finished operations: they may never come again, and control for them is only late."""

from __future__ import annotations

from itertools import islice


class FinishedOperations:
    """Remembers at most `limit` pairs; then the older half is forgotten at once, so that adding stays O(1)."""

    def __init__(self, limit: int) -> None:
        self._limit = max(2, limit)
        self._frame_of: dict[int, int] = {}
        self._frames: set[int] = set()

    def __len__(self) -> int:
        return len(self._frame_of)

    def add(self, operation_id: int, frame_id: int) -> None:
        if len(self._frame_of) >= self._limit:
            self._frame_of = dict(islice(self._frame_of.items(), self._limit // 2, None))
            self._frames = set(self._frame_of.values())
        self._frame_of[operation_id] = frame_id
        self._frames.add(frame_id)

    def has_operation(self, operation_id: int) -> bool:
        return operation_id in self._frame_of

    def has_frame(self, frame_id: int) -> bool:
        return frame_id in self._frames

    def has_pair(self, operation_id: int, frame_id: int) -> bool:
        return self._frame_of.get(operation_id) == frame_id
