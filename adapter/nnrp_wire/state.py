# SPDX-License-Identifier: MIT
"""The three state machines' states, what each operation state may still send, and the events of the core."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from nnrp.core import MessageType
from nnrp.runtime import TraceContextMetadata

from nnrp_wire.carrier import Control

if TYPE_CHECKING:
    from nnrp_wire.operation import WireOperation
    from nnrp_wire.session import WireSession


class ConnectionState(Enum):
    HELLO = auto()  # CLIENT_HELLO expected; TRANSPORT_PROBE allowed
    OPEN = auto()
    CLOSED = auto()


class SessionState(Enum):
    OPEN = auto()
    DRAINING = auto()  # SESSION_CLOSE received, operations may still complete
    CLOSING = auto()  # they were ended and owe us their drop
    CLOSED = auto()  # acknowledged, or the connection is gone


class OperationState(Enum):
    LIVE = auto()
    ENDED = auto()  # from outside; our terminal is still owed
    DONE = auto()  # our terminal is queued
    GONE = auto()  # the connection is lost before our terminal


_NOTHING: frozenset[MessageType] = frozenset()
MAY_SEND: dict[OperationState, frozenset[MessageType]] = {
    OperationState.LIVE: frozenset(
        {
            MessageType.PARTIAL_RESULT,
            MessageType.PROGRESS,
            MessageType.RESULT_PUSH,
            MessageType.RESULT_DROP_REASON,
        }
    ),
    OperationState.ENDED: frozenset({MessageType.RESULT_DROP_REASON}),
    OperationState.DONE: _NOTHING,
    OperationState.GONE: _NOTHING,
}


@dataclass(frozen=True, slots=True)
class SessionOpened:
    session: WireSession


@dataclass(frozen=True, slots=True)
class Submitted:
    operation: WireOperation


@dataclass(frozen=True, slots=True)
class Interrupted:
    """`operation.ended` was set from outside."""

    operation: WireOperation


@dataclass(frozen=True, slots=True)
class Traced:
    session: WireSession
    metadata: TraceContextMetadata
    operation: WireOperation | None


@dataclass(frozen=True, slots=True)
class Controlled:
    session: WireSession
    control: Control
    operation: WireOperation | None


@dataclass(frozen=True, slots=True)
class SessionClosed:
    session: WireSession


@dataclass(frozen=True, slots=True)
class Reopened:
    """Credit has come: what waited may be sent."""


Event = SessionOpened | Submitted | Interrupted | Traced | Controlled | Reopened | SessionClosed
