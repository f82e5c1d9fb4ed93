# SPDX-License-Identifier: MIT
"""One record per operation, closed exactly once; logs, metrics and diagnostics are all made from it.

Prompt text, generated text, tokens' values and trace attributes are never part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from chatdelta.deltas import Timings, Usage
from chatdelta.errors import ErrorCode, ErrorInfo
from chatdelta.requests import Origin, TraceContext


class Outcome(Enum):
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Observation:
    """What happened to one operation. Durations are in seconds; None is unknown."""

    request_id: str
    model: str
    operation: str
    origin: Origin
    outcome: Outcome
    duration_s: float
    first_event_s: float | None
    last_event_s: float | None
    output_events: int
    usage: Usage
    timings: Timings | None
    error_kind: ErrorCode | None
    error_code: str | None
    cancel_reason: str | None
    parser_failure: str | None
    trace: TraceContext | None

    @property
    def event_gap_s(self) -> float | None:
        """The mean time between two events."""
        if self.output_events < 2 or self.first_event_s is None or self.last_event_s is None:
            return None
        return (self.last_event_s - self.first_event_s) / (self.output_events - 1)


class ObservationSink(Protocol):
    def record(self, observation: Observation) -> None: ...


class Observer:
    """Collects one operation's facts; times are passed in by whoever owns the clock (monotonic seconds)."""

    def __init__(
        self,
        *,
        request_id: str,
        model: str,
        operation: str,
        origin: Origin,
        trace: TraceContext | None,
        started_s: float,
    ) -> None:
        self._request_id = request_id
        self._model = model
        self._operation = operation
        self._origin = origin
        self._started_s = started_s
        self._first_event_s: float | None = None
        self._last_event_s: float | None = None
        self._output_events = 0
        self._closed = False
        self.timings: Timings | None = None
        self.parser_failure: str | None = None
        self.cancel_reason: str | None = None
        self.trace = trace  # one that comes late is observed, too

    def emitted(self, count: int, now_s: float) -> None:
        """`count` events go out now."""
        if self._first_event_s is None and count:
            self._first_event_s = now_s - self._started_s
        self._last_event_s = now_s - self._started_s
        self._output_events += count

    def close(self, outcome: Outcome, usage: Usage, now_s: float, *, error: ErrorInfo | None = None) -> Observation:
        """The final record. Raises RuntimeError on a second call: a second terminal is our own bug."""
        if self._closed:
            raise RuntimeError("an observation is closed exactly once")
        self._closed = True
        return Observation(
            request_id=self._request_id,
            model=self._model,
            operation=self._operation,
            origin=self._origin,
            outcome=outcome,
            duration_s=now_s - self._started_s,
            first_event_s=self._first_event_s,
            last_event_s=self._last_event_s,
            output_events=self._output_events,
            usage=usage,
            timings=self.timings,
            error_kind=error.kind if error else None,
            error_code=error.code if error else None,
            cancel_reason=self.cancel_reason,
            parser_failure=self.parser_failure,
            trace=self.trace,
        )
