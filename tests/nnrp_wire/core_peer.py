# SPDX-License-Identifier: MIT
"""A peer of the sans-IO core for tests: feeds bytes at a given time, lists events and takes the answers apart."""

from __future__ import annotations

from nnrp_wire.connection import Connection
from nnrp_wire.counts import FrameCounts
from nnrp_wire.deadlines import Now
from nnrp_wire.limits import WireLimits
from nnrp_wire.operation import WireOperation
from nnrp_wire.state import Controlled, Event, Interrupted, Reopened, SessionClosed, SessionOpened, Submitted, Traced
from tests.support import wire_frames as w

START = Now(monotonic_s=100.0, unix_s=1_700_000_000.0)
START_UNIX_MS = 1_700_000_000_000


def later(seconds: float) -> Now:
    return Now(START.monotonic_s + seconds, START.unix_s + seconds)


def describe(event: Event) -> str:
    """An event in one line: enough to compare, and readable when it differs."""
    match event:
        case SessionOpened(session):
            return f"opened {session.session_id}"
        case Submitted(operation):
            return f"submitted {operation.operation_id}/{operation.frame_id} {operation.body!r}"
        case Interrupted(operation):
            ended = operation.ended
            assert ended is not None
            return f"ended {operation.operation_id} {ended.reason.value}"
        case Traced(_, metadata, of):
            return f"traced {of.operation_id if of else 'session'} {metadata.trace_id:x}"
        case Controlled(_, control, of):
            return f"control {control.message_type.name} {of.operation_id if of else '-'}"
        case Reopened():
            return "reopened"
        case SessionClosed(session):
            return f"closed {session.session_id}"


class CorePeer:
    def __init__(self, limits: WireLimits | None = None, counts: FrameCounts | None = None) -> None:
        self.connection = Connection(limits or WireLimits(), counts=counts)
        self.operations: dict[int, WireOperation] = {}

    def send(self, *frames: bytes, now: Now = START) -> list[str]:
        self.connection.feed(b"".join(frames))
        return self.events(now)

    def tick(self, now: Now) -> list[str]:
        self.connection.tick(now)
        return self.events(now)

    def events(self, now: Now = START) -> list[str]:
        seen: list[str] = []
        while (event := self.connection.next_event(now)) is not None:
            if isinstance(event, Submitted):
                self.operations[event.operation.operation_id] = event.operation
            seen.append(describe(event))
        return seen

    def replies(self) -> list[w.Reply]:
        return w.take_apart(self.connection.take_output())

    @classmethod
    def open(cls, limits: WireLimits | None = None, *, max_in_flight: int = 4) -> CorePeer:
        """Hello done, session 1 open, its answers read."""
        peer = cls(limits)
        assert peer.send(w.hello(), w.session_open(max_in_flight=max_in_flight)) == ["opened 1"]
        peer.replies()
        return peer

    @classmethod
    def busy(cls, limits: WireLimits | None = None) -> CorePeer:
        """As open(), with operation 11/1 live and operation 12/2 finished."""
        peer = cls.open(limits)
        peer.send(w.submit(11, 1), w.submit(12, 2))
        peer.operations[12].send_drop(8, b"", retryable=False)
        peer.replies()
        return peer
