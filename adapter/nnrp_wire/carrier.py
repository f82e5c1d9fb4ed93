# SPDX-License-Identifier: MIT
"""The seam between a carrier and the profile above it.

A carrier owns connections, sessions, frames and their rules; the profile owns what the bytes mean. A carrier calls a
`Handler`; a handler answers through `Operation` and `Session`. Everything happens on one event loop: handler methods
are plain calls that must not block, and what takes time runs in a task the handler owns.

This module knows neither OpenAI nor vLLM nor a transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from nnrp.core import ErrorCode, FrameSubmitMetadata, MessageType, ResultPushMetadata
from nnrp.runtime import ResultDropReasonCode, TraceContextMetadata


class EndReason(Enum):
    """Why an operation ended without our terminal."""

    CANCELLED = "cancelled"  # CANCEL or FRAME_CANCEL of this operation or of its session
    ABORTED = "aborted"  # ABORT, likewise
    SUPERSEDED = "superseded"
    DEADLINE = "deadline"
    STALLED = "stalled"  # the peer stopped reading for longer than the carrier's bound
    SESSION_CLOSED = "session_closed"  # the peer closes the session; one drop may still be sent
    DISCONNECTED = "disconnected"  # the connection is gone; nothing can be sent
    SHUTDOWN = "shutdown"  # the listener stops and the drain time is over


@dataclass(frozen=True, slots=True)
class Ended:
    """How an operation was ended from outside."""

    reason: EndReason
    reason_code: int = 0  # the frame's own reason or drop code, 0 if it has none
    diagnostic: bytes = b""
    replaced_by: int = 0  # SUPERSEDE: the new operation id


class OperationEnded(Exception):
    """push() or finish() on an operation that has ended; `ended` says how (None: our own terminal)."""

    def __init__(self, ended: Ended | None) -> None:
        super().__init__(ended.reason.value if ended else "terminal already sent")
        self.ended = ended


@dataclass(frozen=True, slots=True)
class Control:
    """A control frame whose meaning is the profile's: hints, priority, budget, objects, caches, capabilities.

    Credit has been applied by the carrier already.
    """

    message_type: MessageType
    metadata: Any  # the SDK's metadata record of that message type
    body: bytes = b""
    frame_id: int = 0


class Session(Protocol):
    """One open session. `serial` is unique in the process; `session_id` only within its connection."""

    @property
    def serial(self) -> int: ...
    @property
    def session_id(self) -> int: ...
    @property
    def connection_id(self) -> str: ...
    @property
    def transport(self) -> str: ...  # "tcp", "tls", "unix", "ws", "wss", "quic"
    @property
    def peer(self) -> str: ...  # the peer's address, for logs only
    @property
    def priority_class(self) -> int: ...  # it was opened with: 0 interactive, 1 balanced, 2 background
    def send_trace(self, metadata: TraceContextMetadata, *, frame_id: int = 0) -> None:
        """Queue TRACE_CONTEXT; frame_id 0 is the session's scope. A closed session ignores it."""

    def retry_after(self, delay_ms: int, *, reason: int, diagnostic: bytes = b"") -> None:
        """Queue RETRY_AFTER for this session. A closed session ignores it."""

    def send_capabilities(self, control: Control, tokens: Sequence[str]) -> None:
        """Answer a CAPABILITY_NEGOTIATION or DEGRADE_PROFILE. Raises ValueError for an unknown token."""

    def send_error(self, code: ErrorCode, text: str, *, frame_id: int = 0) -> None:
        """Queue ERROR_RECOVERABLE about one frame of the peer's. A closed session ignores it."""


class Operation(Protocol):
    """One submitted work unit: any number of push() or progress(), then exactly one finish() or drop()."""

    @property
    def session(self) -> Session: ...
    @property
    def operation_id(self) -> int: ...
    @property
    def frame_id(self) -> int: ...
    @property
    def trace_id(self) -> int: ...  # of the submit's header, 0 if none
    @property
    def metadata(self) -> FrameSubmitMetadata: ...
    @property
    def body(self) -> bytes: ...
    @property
    def trace(self) -> TraceContextMetadata | None: ...  # the operation's own, else the session's, as of now
    @property
    def replaces(self) -> bool: ...  # its place was kept by a SUPERSEDE
    @property
    def ended(self) -> Ended | None: ...  # set before Handler.operation_ended is called
    async def push(self, event: bytes) -> None:
        """Send one PARTIAL_RESULT whose body is `event` (not empty).

        Waits while the peer's buffer is full or the peer has taken its credit away.

        Raises OperationEnded once the operation has ended or its terminal is sent.
        """

    def progress(self, stage: int, percent_x100: int = 0xFFFF) -> None:
        """Queue PROGRESS; ignored once the operation has ended."""

    async def finish(self, metadata: ResultPushMetadata, body: bytes) -> None:
        """Send RESULT_PUSH, the successful transport terminal. Raises OperationEnded like push()."""

    def drop(self, code: ResultDropReasonCode, diagnostic: bytes = b"", *, retryable: bool = False) -> None:
        """Send RESULT_DROP_REASON, the one terminal an ended operation still takes. It never waits, so that an ended
        operation never holds its session open.

        Raises OperationEnded if a terminal was already sent; does nothing when the connection is gone.
        """


class Handler(Protocol):
    """What a profile gives to a carrier."""

    def session_opened(self, session: Session) -> None: ...
    def submitted(self, operation: Operation) -> None:
        """A new operation; the handler now owes it exactly one terminal."""

    def operation_ended(self, operation: Operation) -> None:
        """`operation.ended` was set from outside: stop work; send drop() unless disconnected."""

    def traced(self, session: Session, metadata: TraceContextMetadata, operation: Operation | None) -> None: ...
    def controlled(self, session: Session, control: Control, operation: Operation | None) -> None: ...
    def session_closed(self, session: Session) -> None:
        """After the last operation of the session has ended."""
