# SPDX-License-Identifier: MIT
"""What a session keeps for submits that have not arrived yet: deadlines, traces, and the place of a replacement."""

from __future__ import annotations

from nnrp.core import ErrorCode
from nnrp.runtime import TraceContextMetadata

from nnrp_wire.deadlines import Now
from nnrp_wire.wire import FrameRefused


class Reservations:
    """Of one session, each kind bounded."""

    def __init__(self, *, max_operations: int, max_traces: int, replacement_wait_s: float) -> None:
        self._max_operations = max_operations
        self._max_traces = max_traces
        self._replacement_wait_s = replacement_wait_s
        self._deadlines: dict[int, tuple[int, float]] = {}  # operation id: frame id, monotonic time
        self._traces: dict[int, TraceContextMetadata] = {}  # by frame id
        self._replacements: dict[int, float] = {}  # operation id: monotonic time until which its place is kept

    # A DEADLINE before its submit

    def add_deadline(self, operation_id: int, frame_id: int, due_s: float, now: Now) -> None:
        """Raises FrameRefused."""
        early = self._deadlines
        if operation_id in early or any(reserved == frame_id for reserved, _ in early.values()):
            raise FrameRefused("a second early DEADLINE")
        if due_s <= now.monotonic_s:
            raise FrameRefused("an early DEADLINE in the past")
        if len(early) >= self._max_operations:
            # Submits that never came must not block those to come.
            for expired in [key for key, (_, expired_s) in early.items() if expired_s <= now.monotonic_s]:
                del early[expired]
        if len(early) >= self._max_operations:
            raise FrameRefused("too many early DEADLINEs", ErrorCode.LIMIT_EXCEEDED)
        early[operation_id] = (frame_id, due_s)

    def take_deadline(self, operation_id: int, frame_id: int) -> float | None:
        """The monotonic time a submit is due, None for none. Raises FrameRefused if it was announced otherwise."""
        if not self._deadlines:
            return None
        reserved_frame, due_s = self._deadlines.pop(operation_id, (frame_id, None))
        others = [key for key, (reserved, _) in self._deadlines.items() if reserved == frame_id]
        for key in others:
            del self._deadlines[key]
        if reserved_frame != frame_id or others:
            raise FrameRefused("the submit does not match its early DEADLINE")
        return due_s

    # A TRACE_CONTEXT before its submit

    def add_trace(self, frame_id: int, metadata: TraceContextMetadata) -> None:
        self._traces[frame_id] = metadata
        if len(self._traces) > self._max_traces:
            del self._traces[next(iter(self._traces))]  # the oldest: its submit never came

    def take_trace(self, frame_id: int) -> TraceContextMetadata | None:
        return self._traces.pop(frame_id, None)

    # The replacement that a SUPERSEDE has announced

    def await_replacement(self, operation_id: int, now: Now) -> None:
        if len(self._replacements) < self._max_operations:
            self._replacements[operation_id] = now.monotonic_s + self._replacement_wait_s

    def replacements(self, now: Now) -> int:
        """How many places are kept. One whose replacement never came is given up after a time."""
        for operation_id in [key for key, until_s in self._replacements.items() if until_s <= now.monotonic_s]:
            del self._replacements[operation_id]
        return len(self._replacements)

    def take_replacement(self, operation_id: int, now: Now) -> bool:
        """Whether a place is kept for this operation; it then takes it."""
        self.replacements(now)
        return self._replacements.pop(operation_id, None) is not None
