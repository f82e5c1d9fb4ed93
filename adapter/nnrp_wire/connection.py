# SPDX-License-Identifier: MIT
"""The sans-IO server connection: bytes in, events out; sends in, bytes out.

No asyncio and no clock: `feed()` takes bytes, `next_event()` hands out one event at a time with the time given by the
caller, `take_output()` gives the bytes to write. Pull events until None after every call that may cause some: feed(),
tick(), lose(), end_operations(), and a terminal sent by an operation.
"""

from __future__ import annotations

import logging
from typing import Any

from nnrp.core import ClientHelloMetadata, MessageType, TransportProbeAckMetadata

from nnrp_wire.answers import ANSWERS
from nnrp_wire.carrier import EndReason
from nnrp_wire.counts import FrameCounts
from nnrp_wire.deadlines import Now
from nnrp_wire.handshake import OpenDecision, OpenError, check_resume_fields, decide_open, hello_ack, open_ack
from nnrp_wire.limits import WireLimits
from nnrp_wire.rules import RULES, Action, Rule, Scope
from nnrp_wire.session import REASON_SHUTDOWN, Link, WireSession
from nnrp_wire.state import ConnectionState, Event, SessionOpened
from nnrp_wire.wire import KNOWN_HEADER_FLAGS, Frame, FrameReader, FrameRefused, WireFault, packet

logger = logging.getLogger(__name__)

_BEFORE_HELLO = (Action.HELLO, Action.PROBE)
_UNREAD_ANSWERS = "the peer does not read its answers"


class Connection:
    """One peer. `name` is for log lines only."""

    def __init__(self, limits: WireLimits, name: str = "-", counts: FrameCounts | None = None) -> None:
        self.limits = limits
        self.name = name
        self.state = ConnectionState.HELLO
        self.refused_frames = 0
        self.fault: str | None = None  # why we gave up; None: we did not
        self._counts = counts or FrameCounts()
        self._reader = FrameReader(limits.max_packet_bytes)
        self._link = Link(limits)
        self._used_session_ids: set[int] = set()
        self._last_auto_id = 0

    # What the shell asks

    @property
    def sessions(self) -> tuple[WireSession, ...]:
        return tuple(self._link.sessions.values())

    @property
    def operations_in_flight(self) -> int:
        return sum(len(session.operations) for session in self._link.sessions.values())

    @property
    def is_idle(self) -> bool:
        return not any(session.operations for session in self._link.sessions.values())

    @property
    def holds_half_packet(self) -> bool:
        return self._reader.holds_half_packet

    @property
    def packets_received(self) -> int:
        return self._reader.packets

    @property
    def output_bytes(self) -> int:
        return self._link.outbox.size

    def next_wakeup_s(self) -> float | None:
        """The monotonic time at which tick() is due."""
        return self._link.timers.next_due_s()

    # In

    def feed(self, data: bytes) -> None:
        if self.state is not ConnectionState.CLOSED:
            self._reader.feed(data)

    def next_event(self, now: Now) -> Event | None:
        """The next event; frames are handled one by one, so an event is seen before the frame after it takes effect."""
        events = self._link.events
        while not events and self.state is not ConnectionState.CLOSED:
            try:
                frame = self._reader.next_frame()
                if frame is None:
                    break
                self._take(frame, now)
                if self._answers_too_much():
                    raise WireFault(_UNREAD_ANSWERS)
            except WireFault as fault:
                self._fail(str(fault))
        return events.popleft() if events else None

    def tick(self, now: Now) -> None:
        """Let what is due happen: deadlines and the steps of a session's close."""
        for due in self._link.timers.pop_due(now.monotonic_s):
            due.time_up(now)

    def count_answer(self, size: int) -> None:
        """Bytes that the peer caused outside of this core; too many that it does not read end the connection."""
        self._link.outbox.unread_answer_bytes += size
        if self._answers_too_much():
            self._fail(_UNREAD_ANSWERS)

    def _answers_too_much(self) -> bool:
        return self._link.outbox.unread_answer_bytes > self.limits.max_unread_answer_bytes

    def peer_is_reading(self) -> None:
        """Everything queued so far has left: the answers count starts again."""
        self._link.outbox.unread_answer_bytes = 0

    # Out

    def take_output(self) -> bytes:
        return self._link.outbox.take()

    # Ends

    def begin_drain(self) -> None:
        """Refuse new sessions and operations from now on."""
        self._link.draining = True

    def end_operations(self, reason: EndReason) -> None:
        for session in self.sessions:
            session.end_operations(reason)

    def turn_away(self) -> None:
        """Terminals for whatever still owes one, and RETRY_AFTER: the last words before the transport is closed."""
        for session in self.sessions:
            session.drop_rest()
            session.send_retry_after(self.limits.retry_after_ms, REASON_SHUTDOWN, b"")

    def lose(self, reason: EndReason = EndReason.DISCONNECTED) -> None:
        """The transport is gone: every operation and session ends. A second call changes nothing."""
        if self.state is ConnectionState.CLOSED:
            return
        self.state = ConnectionState.CLOSED
        for session in self.sessions:
            session.lose(reason)

    def _fail(self, fault: str) -> None:
        logger.info("%s: connection closed: %s", self.name, fault)
        self.fault = fault
        self.lose()

    # Frames

    def _take(self, frame: Frame, now: Now) -> None:
        """Handle one frame; a refused one is counted and has no other effect. Raises WireFault."""
        self._counts.receive(frame.message_type)
        try:
            self._receive(frame, now)
        except FrameRefused as refusal:
            self.refused_frames += 1
            self._counts.refuse(frame.message_type, refusal.code)
            kind, session_id = frame.message_type, frame.session_id
            logger.debug("%s: frame 0x%02x of session %d refused: %s", self.name, kind, session_id, refusal)
            if (session := self._link.sessions.get(session_id)) is not None:
                session.send_error(refusal.code, str(refusal), frame.frame_id)
            if self.refused_frames >= self.limits.max_refused_frames:
                raise WireFault(f"{self.refused_frames} refused frames") from refusal

    def _receive(self, frame: Frame, now: Now) -> None:
        rule = RULES.get(frame.message_type)
        if self.state is ConnectionState.HELLO and (rule is None or rule.action not in _BEFORE_HELLO):
            raise WireFault("the first frame is not CLIENT_HELLO")
        if rule is None or rule.action is Action.REFUSE:
            raise FrameRefused("not a frame for this server")
        if frame.flags & ~KNOWN_HEADER_FLAGS:
            raise FrameRefused("unknown header flags")
        if rule.fatal and frame.session_id:
            raise WireFault("a frame of session 0 names a session")
        metadata = rule.decode(frame)
        if frame.session_id:
            self._session_frame(rule, frame, metadata, now)
        elif rule.scope is Scope.SESSION:
            raise FrameRefused("this frame needs a session")
        else:
            self._connection_frame(rule, frame, metadata, now)

    def _session_frame(self, rule: Rule, frame: Frame, metadata: Any, now: Now) -> None:
        session = self._link.sessions.get(frame.session_id)
        if session is None:
            raise FrameRefused("unknown session")
        session.receive(rule, frame, metadata, now)

    def _connection_frame(self, rule: Rule, frame: Frame, metadata: Any, now: Now) -> None:
        match rule.action:
            case Action.HELLO:
                self._hello(metadata)
            case Action.PROBE:
                ack = TransportProbeAckMetadata(metadata.probe_id, 0, int(now.unix_s * 1_000_000))
                self._link.outbox.put_answer(packet(MessageType.TRANSPORT_PROBE_ACK, metadata=ack.pack()))
            case Action.OPEN:
                self._open(metadata)
            case Action.PONG:
                message_type, _, _ = ANSWERS[MessageType.PING](None)
                self._link.outbox.put_answer(packet(message_type, frame_id=frame.frame_id))
            case Action.PRESSURE:
                self._link.press(metadata)
            case _:
                pass  # trace and PONG of the whole connection: valid, and nothing here depends on them

    def _hello(self, metadata: ClientHelloMetadata) -> None:
        if self.state is not ConnectionState.HELLO:
            raise WireFault("a second CLIENT_HELLO")
        self._link.outbox.put_answer(hello_ack(metadata, self.limits))
        self.state = ConnectionState.OPEN

    def _open(self, request: Any) -> None:
        check_resume_fields(request)
        decision = decide_open(request, self.limits)
        if decision.error is OpenError.NONE:
            decision = self._decide_here(request)
        if decision.error is not OpenError.NONE:
            self._link.outbox.put_answer(open_ack(request, decision, session_id=0, max_in_flight=0))
            return
        session_id = request.requested_session_id or self._next_session_id()
        max_in_flight = request.max_in_flight_operations or self.limits.max_in_flight
        self._used_session_ids.add(session_id)
        session = WireSession(self._link, request, session_id, max_in_flight)
        self._link.sessions[session_id] = session
        self._link.outbox.put_answer(open_ack(request, decision, session_id=session_id, max_in_flight=max_in_flight))
        self._link.events.append(SessionOpened(session))

    def _decide_here(self, request: Any) -> OpenDecision:
        """What depends on this connection."""
        limits = self.limits
        if self._link.draining:
            return OpenDecision(OpenError.LIMIT, b"the server is shutting down")
        if request.resume_token_bytes:
            return OpenDecision(OpenError.RESUME, b"resume is not offered")
        if request.requested_session_id in self._used_session_ids:
            return OpenDecision(OpenError.LIMIT, b"session id already used on this connection")
        if len(self._link.sessions) >= limits.max_sessions_per_connection:
            return OpenDecision(OpenError.LIMIT, b"too many sessions on this connection")
        if len(self._used_session_ids) >= limits.max_session_ids_per_connection:
            return OpenDecision(OpenError.LIMIT, b"no session ids left on this connection")
        return OpenDecision()

    def _next_session_id(self) -> int:
        # Never one used before: a client refuses an id it has seen, even of a session it has closed.
        session_id = self._last_auto_id + 1
        while session_id in self._used_session_ids:
            session_id += 1
        self._last_auto_id = session_id
        return session_id
