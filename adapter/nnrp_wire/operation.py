# SPDX-License-Identifier: MIT
"""One operation of the core: what it may still send, and how it ends. No waiting, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnrp.core import FrameSubmitMetadata, MessageType, ResultPushMetadata
from nnrp.runtime import TraceContextMetadata

from nnrp_wire.carrier import Ended, EndReason, OperationEnded
from nnrp_wire.deadlines import Now
from nnrp_wire.pressure import Valve
from nnrp_wire.state import MAY_SEND, Interrupted, OperationState
from nnrp_wire.wire import MAX_EVENT_BYTES, drop_packet, packet, progress_packet

if TYPE_CHECKING:
    from nnrp_wire.session import WireSession

_LIVE = OperationState.LIVE


class WireOperation:
    """A submitted work unit. `state` decides what passes; exactly one terminal ever does."""

    __slots__ = (
        "_deadline_s",
        "_expire_at_s",
        "_outbox",
        "_progress_sequence",
        "_result_sequence",
        "_session_id",
        "body",
        "ended",
        "frame_id",
        "metadata",
        "operation_id",
        "own_trace",
        "replaces",
        "session",
        "state",
        "trace_id",
        "valve",
    )

    def __init__(
        self, session: WireSession, metadata: FrameSubmitMetadata, body: bytes, *, frame_id: int, trace_id: int
    ) -> None:
        self.session = session
        self.metadata = metadata
        self.body = body
        self.operation_id: int = metadata.operation_id
        self.frame_id = frame_id
        self.trace_id = trace_id
        self.own_trace: TraceContextMetadata | None = None
        self.ended: Ended | None = None
        self.state = OperationState.LIVE
        self.valve = Valve()
        self.replaces = False
        self._session_id = session.session_id
        self._outbox = session.outbox
        self._result_sequence = 0
        self._progress_sequence = 0
        self._deadline_s: float | None = None
        self._expire_at_s: float | None = None

    @property
    def is_held(self) -> bool:
        """Whether the peer has closed this operation's scope, or one around it."""
        return self.valve.closed or self.session.is_held

    @property
    def trace(self) -> TraceContextMetadata | None:
        return self.own_trace or self.session.trace

    # What the server sends

    def send_partial(self, event: bytes) -> None:
        """Queue one PARTIAL_RESULT. Raises OperationEnded; ValueError if `event` is empty or too large."""
        if self.state is not _LIVE:  # MAY_SEND in one comparison: this runs once per token
            raise OperationEnded(self.ended)
        if not 0 < len(event) <= MAX_EVENT_BYTES:
            raise ValueError(f"an event has 1..{MAX_EVENT_BYTES} bytes, not {len(event)}")
        self._result_sequence = sequence = self._result_sequence + 1
        self._outbox.put_partial(self._session_id, self.frame_id, self.operation_id, sequence, event)

    def send_progress(self, stage: int, percent_x100: int) -> None:
        if MessageType.PROGRESS not in MAY_SEND[self.state]:
            return
        self._progress_sequence += 1
        self._outbox.put(
            progress_packet(
                self._session_id, self.frame_id, self.operation_id, self._progress_sequence, stage, percent_x100
            )
        )

    def send_result(self, metadata: ResultPushMetadata, body: bytes) -> None:
        """Queue RESULT_PUSH, the successful terminal. Raises OperationEnded; ValueError if it is too large."""
        if MessageType.RESULT_PUSH not in MAY_SEND[self.state]:
            raise OperationEnded(self.ended)
        if len(body) > MAX_EVENT_BYTES - metadata.STRUCT.size:
            raise ValueError(f"a result of {len(body)} bytes does not fit into a packet")
        self._outbox.put(
            packet(
                MessageType.RESULT_PUSH,
                session_id=self._session_id,
                frame_id=self.frame_id,
                metadata=metadata.pack(),
                body=body,
            )
        )
        self._finished(OperationState.DONE)

    def send_drop(self, code: int, diagnostic: bytes, *, retryable: bool) -> None:
        """Queue RESULT_DROP_REASON. Raises OperationEnded after a terminal; nothing happens on a lost connection."""
        if self.state is OperationState.GONE:
            return
        if MessageType.RESULT_DROP_REASON not in MAY_SEND[self.state]:
            raise OperationEnded(self.ended)
        if not 0 < code <= 0xFFFF:
            raise ValueError("a drop needs a reason code")
        sequence = self._result_sequence + 1
        self._outbox.put(
            drop_packet(
                self._session_id, self.frame_id, self.operation_id, sequence, code, diagnostic, retryable=retryable
            )
        )
        self._finished(OperationState.DONE)

    # What happens to it

    def end(self, ended: Ended) -> None:
        """End it from outside, once; later reasons are late and change nothing."""
        if self.state is not OperationState.LIVE:
            return
        self.state = OperationState.ENDED
        self.ended = ended
        self.session.timers.cancel(self)
        self.session.events.append(Interrupted(self))

    def lose(self, reason: EndReason) -> None:
        """The connection is gone."""
        self.end(Ended(reason))
        self._finished(OperationState.GONE)

    def set_deadline(self, due_s: float, now: Now) -> None:
        self._deadline_s = due_s
        self._arm(now)

    def set_expire_at(self, due_s: float, now: Now) -> None:
        self._expire_at_s = due_s
        self._arm(now)

    def time_up(self, _now: Now) -> None:
        self.end(Ended(EndReason.DEADLINE))

    def _arm(self, now: Now) -> None:
        due_s = min(due for due in (self._deadline_s, self._expire_at_s) if due is not None)
        if due_s <= now.monotonic_s:
            self.time_up(now)
        elif self.state is OperationState.LIVE:
            self.session.timers.set(self, due_s)

    def _finished(self, state: OperationState) -> None:
        self.state = state
        self.session.timers.cancel(self)
        self.session.operation_finished(self)
