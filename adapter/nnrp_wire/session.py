# SPDX-License-Identifier: MIT
"""One session of the core: its operations, what its frames do to them, and its close."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from nnrp.core import ErrorCode, FlowUpdateMetadata, FrameSubmitMetadata, MessageType, SessionOpenMetadata
from nnrp.runtime import (
    InFlightPolicy,
    ResultDropReasonCode,
    SchedulingMetadata,
    SessionCloseMetadata,
    TraceContextMetadata,
)

from nnrp_wire import answers
from nnrp_wire.carrier import Control, Ended, EndReason
from nnrp_wire.deadlines import Now, Timers
from nnrp_wire.finished import FinishedOperations
from nnrp_wire.limits import WireLimits
from nnrp_wire.operation import WireOperation
from nnrp_wire.pressure import Pressure, PressureScope, Valve, read_pressure
from nnrp_wire.reservations import Reservations
from nnrp_wire.rules import Action, Rule, Target
from nnrp_wire.state import Controlled, Event, Reopened, SessionClosed, SessionState, Submitted, Traced
from nnrp_wire.wire import (
    Frame,
    FrameRefused,
    Outbox,
    drop_packet,
    error_packet,
    packet,
    retry_after_packet,
    session_close_ack_packet,
)

# The protocol's reason codes that a RETRY_AFTER of ours carries.
REASON_BUDGET_EXCEEDED = 4
REASON_SHUTDOWN = 7
_SEQUENCED = (MessageType.DEADLINE, MessageType.EXPIRE_AT, MessageType.PRIORITY_UPDATE)


@dataclass(slots=True)
class Link:
    """What the sessions of one connection share."""

    limits: WireLimits
    outbox: Outbox = field(default_factory=Outbox)
    events: deque[Event] = field(default_factory=deque)
    timers: Timers[WireOperation | WireSession] = field(default_factory=Timers)
    sessions: dict[int, WireSession] = field(default_factory=dict)
    draining: bool = False  # no new sessions, no new operations
    valve: Valve = field(default_factory=Valve)

    def press(self, metadata: FlowUpdateMetadata) -> None:
        """A FLOW_UPDATE of the whole connection."""
        self.turn(self.valve, read_pressure(MessageType.FLOW_UPDATE, metadata))

    def turn(self, valve: Valve, pressure: Pressure) -> bool:
        """Whether the update counted; who waits for it to open is told."""
        was_closed = valve.closed
        counted = valve.apply(pressure)
        if was_closed and not valve.closed:
            self.events.append(Reopened())
        return counted


@dataclass(frozen=True, slots=True)
class Received:
    """A decoded frame with the operation it names, if it names one."""

    frame: Frame
    metadata: Any
    now: Now
    operation: WireOperation | None = None

    @property
    def message_type(self) -> MessageType:
        return MessageType(self.frame.message_type)


class WireSession:
    def __init__(self, link: Link, request: SessionOpenMetadata, session_id: int, max_in_flight: int) -> None:
        self._link = link
        self.outbox, self.events, self.timers = link.outbox, link.events, link.timers
        self.session_id = session_id
        self.request = request
        self.max_in_flight = max_in_flight
        self.state = SessionState.OPEN
        self.operations: dict[int, WireOperation] = {}
        self.trace: TraceContextMetadata | None = None
        self._frames: dict[int, WireOperation] = {}
        self._finished = FinishedOperations(link.limits.max_used_operations)
        self._valve = Valve()
        self._sequences: dict[tuple[MessageType, int], int] = {}  # of control, by frame type and operation
        self._reservations = Reservations(
            max_operations=max_in_flight,
            max_traces=link.limits.max_early_traces,
            replacement_wait_s=link.limits.replacement_wait_s,
        )
        self._close: SessionCloseMetadata | None = None
        self._control_sequence = 0

    @property
    def is_held(self) -> bool:
        return self._valve.closed or self._link.valve.closed

    # Frames in

    def receive(self, rule: Rule, frame: Frame, metadata: Any, now: Now) -> None:
        """One frame of this session. Raises FrameRefused."""
        operation, is_late = self._resolve(rule, frame, metadata)
        if is_late:
            return  # control for what has finished crossed our terminal on the wire
        self._ACTIONS[rule.action](self, Received(frame, metadata, now, operation))

    def _resolve(self, rule: Rule, frame: Frame, metadata: Any) -> tuple[WireOperation | None, bool]:
        """The operation the frame names, and whether it has already finished. Raises FrameRefused."""
        target, frame_id = rule.target, frame.frame_id
        if target is Target.NONE:
            return None, False
        if target in (Target.FRAME, Target.SESSION_OR_FRAME_OR_EARLY):
            operation = self._frames.get(frame_id)
            may_be_unknown = target is Target.SESSION_OR_FRAME_OR_EARLY
            is_late = operation is None and self._finished.has_frame(frame_id)
        else:
            operation_id: int = getattr(metadata, rule.operation_field)
            if operation_id == 0 and self._names_no_operation(target, frame_id):
                return None, False
            operation = self.operations.get(operation_id)
            if operation is not None and operation.frame_id != frame_id:
                raise FrameRefused("operation id and frame id do not belong together")
            may_be_unknown = target is Target.OPERATION_OR_EARLY
            is_late = operation is None and self._finished.has_pair(operation_id, frame_id)
        if operation is None and not is_late and not may_be_unknown:
            raise FrameRefused("unknown operation")
        return operation, is_late

    @staticmethod
    def _names_no_operation(target: Target, frame_id: int) -> bool:
        return target is Target.OPTIONAL_OPERATION or (target is Target.WHOLE_SESSION_OR_OPERATION and frame_id == 0)

    def _submit(self, received: Received) -> None:
        frame, metadata = received.frame, received.metadata
        reservations = self._reservations
        deadline_s = reservations.take_deadline(metadata.operation_id, frame.frame_id)
        if frame.frame_id == 0 or self._is_used(metadata.operation_id, frame.frame_id):
            raise FrameRefused("operation or frame id is 0 or already used")
        if self.state is not SessionState.OPEN:
            raise FrameRefused("the session is closing")
        early_trace = reservations.take_trace(frame.frame_id)
        replaces = reservations.take_replacement(metadata.operation_id, received.now)
        if self._link.draining or (self._is_full(received.now) and not replaces):
            self._turn_away(metadata, frame.frame_id)
            return
        operation = WireOperation(self, metadata, frame.body, frame_id=frame.frame_id, trace_id=frame.trace_id)
        operation.own_trace = early_trace
        operation.replaces = replaces
        self.operations[operation.operation_id] = operation
        self._frames[operation.frame_id] = operation
        self.events.append(Submitted(operation))
        if early_trace is not None:
            self.events.append(Traced(self, early_trace, operation))
        if deadline_s is not None:
            operation.set_deadline(deadline_s, received.now)

    def _is_full(self, now: Now) -> bool:
        return len(self.operations) + self._reservations.replacements(now) >= self.max_in_flight

    def _is_used(self, operation_id: int, frame_id: int) -> bool:
        in_use = operation_id in self.operations or frame_id in self._frames
        return in_use or self._finished.has_operation(operation_id) or self._finished.has_frame(frame_id)

    def _turn_away(self, metadata: FrameSubmitMetadata, frame_id: int) -> None:
        operation_id = metadata.operation_id
        self._finished.add(operation_id, frame_id)
        code = int(ResultDropReasonCode.BACKPRESSURE)
        self.outbox.put_answer(drop_packet(self.session_id, frame_id, operation_id, 1, code, b"", retryable=True))
        reason = REASON_SHUTDOWN if self._link.draining else REASON_BUDGET_EXCEEDED
        self.send_retry_after(self._link.limits.retry_after_ms, reason, b"")

    def _end(self, received: Received) -> None:
        """CANCEL, ABORT, FRAME_CANCEL, SUPERSEDE; without an operation: all of them."""
        ended = _ended_by(received)
        if received.message_type is MessageType.SUPERSEDE:
            self._await_replacement(ended.replaced_by, received.now)
        for operation in [received.operation] if received.operation else list(self.operations.values()):
            operation.end(ended)

    def _await_replacement(self, operation_id: int, now: Now) -> None:
        """Keep a place for what replaces a superseded operation. Raises FrameRefused."""
        if not operation_id or self._finished.has_operation(operation_id):
            raise FrameRefused("the replacement's operation id is 0 or already used")
        if operation_id not in self.operations:
            self._reservations.await_replacement(operation_id, now)

    def _refuse_stale(self, received: Received) -> None:
        """Updates of one kind for one operation count in the order of their sequence; 0 is unordered."""
        metadata: SchedulingMetadata = received.metadata
        key = (received.message_type, metadata.operation_id)
        if metadata.control_sequence and metadata.control_sequence < self._sequences.get(key, 0):
            raise FrameRefused("a newer update of this kind has been applied", ErrorCode.FRAME_EXPIRED)
        if received.operation is not None:
            self._sequences[key] = metadata.control_sequence

    def _schedule(self, received: Received) -> None:
        self._refuse_stale(received)
        metadata: SchedulingMetadata = received.metadata
        due_s = received.now.at_unix_ms(metadata.deadline_unix_ms)
        operation = received.operation
        if operation is None:
            self._reserve(metadata.operation_id, received.frame.frame_id, due_s, received.now)
        elif received.message_type is MessageType.DEADLINE:
            operation.set_deadline(due_s, received.now)
        else:
            operation.set_expire_at(due_s, received.now)

    def _reserve(self, operation_id: int, frame_id: int, due_s: float, now: Now) -> None:
        if not operation_id or not frame_id or self._is_used(operation_id, frame_id):
            raise FrameRefused("operation and frame id do not belong together")
        self._reservations.add_deadline(operation_id, frame_id, due_s, now)

    def _trace(self, received: Received) -> None:
        metadata, operation, frame_id = received.metadata, received.operation, received.frame.frame_id
        if operation is not None:
            operation.own_trace = metadata
        elif frame_id == 0:
            self.trace = metadata
        else:
            self._reservations.add_trace(frame_id, metadata)
            return  # told with its submit
        self.events.append(Traced(self, metadata, operation))

    def _press(self, received: Received) -> None:
        try:
            pressure = read_pressure(received.message_type, received.metadata)
        except ValueError as error:
            raise FrameRefused(str(error), ErrorCode.MALFORMED_BODY) from error
        if (valve := self._valve_of(pressure)) is None:
            return
        if not self._link.turn(valve, pressure):
            raise FrameRefused("a newer credit update has been applied", ErrorCode.FRAME_EXPIRED)
        self._observe(received)

    def _valve_of(self, pressure: Pressure) -> Valve | None:
        """None for an operation that has finished. Raises FrameRefused."""
        if pressure.scope is PressureScope.CONNECTION:
            return self._link.valve
        if pressure.scope is PressureScope.SESSION:
            return self._valve
        operation = self.operations.get(pressure.operation_id)
        if operation is None and not self._finished.has_operation(pressure.operation_id):
            raise FrameRefused("unknown operation")
        return None if operation is None else operation.valve

    def _observe(self, received: Received) -> None:
        if received.message_type is MessageType.PRIORITY_UPDATE:
            self._refuse_stale(received)
        frame = received.frame
        control = Control(received.message_type, received.metadata, frame.body, frame.frame_id)
        self.events.append(Controlled(self, control, received.operation))

    def _answer(self, received: Received) -> None:
        """Answer in the carrier, then let the handler see it."""
        self._put_answer(answers.ANSWERS[received.message_type](received.metadata), received.frame.frame_id)
        if received.message_type is not MessageType.PING:
            self._observe(received)

    def _put_answer(self, answer: answers.Answer, frame_id: int) -> None:
        message_type, metadata, body = answer
        self.outbox.put_answer(
            packet(message_type, session_id=self.session_id, frame_id=frame_id, metadata=metadata, body=body)
        )

    def _closing(self, received: Received) -> None:
        if self.state is not SessionState.OPEN:
            raise FrameRefused("a second SESSION_CLOSE")
        metadata: SessionCloseMetadata = received.metadata
        self._close = metadata
        self.state = SessionState.DRAINING
        drain_s = min(metadata.drain_timeout_ms / 1000, self._link.limits.max_close_drain_s)
        if not self.operations:
            self._acknowledge_close()
        elif metadata.in_flight_policy is InFlightPolicy.ABORT or drain_s <= 0:
            self.time_up(received.now)
        else:
            self.timers.set(self, received.now.monotonic_s + drain_s)

    _ACTIONS: ClassVar[dict[Action, Callable[[WireSession, Received], None]]] = {
        Action.SUBMIT: _submit,
        Action.END: _end,
        Action.SCHEDULE: _schedule,
        Action.TRACE: _trace,
        Action.OBSERVE: _observe,
        Action.PRESSURE: _press,
        Action.CACHE_MISS: _answer,
        Action.CACHE_REJECT: _answer,
        Action.PATCH_REJECT: _answer,
        Action.PONG: _answer,
        Action.CLOSE: _closing,
    }

    # Close

    def time_up(self, now: Now) -> None:
        """The time of the current closing step is over: end the operations, then drop what still owes a terminal."""
        if self.state is SessionState.DRAINING:
            self.state = SessionState.CLOSING
            self.timers.set(self, now.monotonic_s + self._link.limits.close_grace_s)
            self.end_operations(EndReason.SESSION_CLOSED)
        elif self.state is SessionState.CLOSING:
            self.drop_rest()

    def end_operations(self, reason: EndReason) -> None:
        for operation in list(self.operations.values()):
            operation.end(Ended(reason))

    def drop_rest(self) -> None:
        """Terminals for operations whose handler did not send them in time."""
        for operation in list(self.operations.values()):
            operation.send_drop(ResultDropReasonCode.TRANSPORT_CLOSED, b"", retryable=False)

    def operation_finished(self, operation: WireOperation) -> None:
        """Called by the operation with its terminal, or when the connection is gone."""
        self.operations.pop(operation.operation_id, None)
        self._frames.pop(operation.frame_id, None)
        for message_type in _SEQUENCED:
            self._sequences.pop((message_type, operation.operation_id), None)
        self._finished.add(operation.operation_id, operation.frame_id)
        if not self.operations and self.state in (SessionState.DRAINING, SessionState.CLOSING):
            self._acknowledge_close()

    def lose(self, reason: EndReason) -> None:
        """The connection is gone: nothing can be sent any more."""
        self.state = SessionState.CLOSED
        for operation in list(self.operations.values()):
            operation.lose(reason)
        self._forget()

    def _acknowledge_close(self) -> None:
        assert self._close is not None
        self.outbox.put_answer(session_close_ack_packet(self.session_id, self._close.last_operation_id))
        self.state = SessionState.CLOSED  # after the ack nothing may be sent for this id
        self._forget()

    def _forget(self) -> None:
        self.timers.cancel(self)
        self._link.sessions.pop(self.session_id, None)
        self.events.append(SessionClosed(self))

    # Frames of the session's own scope

    def send_trace(self, metadata: TraceContextMetadata, frame_id: int) -> None:
        """Ignored once closed, and for a frame id that names no open operation: the client would raise."""
        if self.state is SessionState.CLOSED or (frame_id and frame_id not in self._frames):
            return
        if metadata.body_bytes or not metadata.trace_id or not metadata.span_id:
            raise ValueError("a TRACE_CONTEXT of ours has trace id and span id, and no body")
        self.outbox.put_answer(
            packet(MessageType.TRACE_CONTEXT, session_id=self.session_id, frame_id=frame_id, metadata=metadata.pack())
        )

    def send_capabilities(self, control: Control, tokens: Sequence[str]) -> None:
        """Answer a CAPABILITY_NEGOTIATION or DEGRADE_PROFILE with what is true."""
        if self.state is not SessionState.CLOSED:
            self._put_answer(answers.capabilities(control.message_type, control.metadata, tokens), control.frame_id)

    def send_error(self, code: ErrorCode, text: str, frame_id: int) -> None:
        """Queue ERROR_RECOVERABLE about one frame of the peer's."""
        if self.state is not SessionState.CLOSED:
            self.outbox.put_answer(error_packet(self.session_id, code, text, frame_id))

    def send_retry_after(self, delay_ms: int, reason: int, diagnostic: bytes) -> None:
        if self.state is SessionState.CLOSED:
            return
        self._control_sequence += 1
        sequence = self._control_sequence
        self.outbox.put_answer(retry_after_packet(self.session_id, sequence, delay_ms, reason, diagnostic))


def _ended_by(received: Received) -> Ended:
    metadata, diagnostic = received.metadata, received.frame.body
    match received.message_type:
        case MessageType.ABORT:
            return Ended(EndReason.ABORTED, metadata.reason_code, diagnostic)
        case MessageType.CANCEL:
            return Ended(EndReason.CANCELLED, metadata.reason_code, diagnostic)
        case MessageType.SUPERSEDE:
            code = metadata.drop_reason_code
            return Ended(EndReason.SUPERSEDED, code, diagnostic, replaced_by=metadata.new_operation_id)
        case _:
            return Ended(EndReason.CANCELLED)  # FRAME_CANCEL says nothing more
