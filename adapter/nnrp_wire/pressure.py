# SPDX-License-Identifier: MIT
"""What a peer asks to hold back: one switch per scope, read from three kinds of frames.

A peer's credit is not counted down: a window of 0 or a hard level closes its scope, and credit opens it again. While
closed, no event and no result of that scope is sent; a drop always is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from nnrp.core import (
    FlowUpdateBackpressureLevel,
    FlowUpdateFlags,
    FlowUpdateMetadata,
    FlowUpdateReason,
    FlowUpdateScopeKind,
    MessageType,
)
from nnrp.runtime import PressureMetadata

HARD_LEVEL = 2  # of BACKPRESSURE; 1 is advice
_CONNECTION_FLAG, _OPERATION_FLAG = 1, 2


class PressureScope(Enum):
    CONNECTION = auto()
    SESSION = auto()
    OPERATION = auto()


@dataclass(frozen=True, slots=True)
class Pressure:
    """`closed` None: the frame is advice and changes nothing. `epoch` orders a scope's updates; 0 is unordered."""

    scope: PressureScope
    operation_id: int  # of the operation scope
    closed: bool | None
    epoch: int = 0


class Valve:
    """One scope's switch."""

    __slots__ = ("_epoch", "closed")

    def __init__(self) -> None:
        self.closed = False
        self._epoch = 0

    def apply(self, pressure: Pressure) -> bool:
        """Whether the update counts: one that is older than the last is stale."""
        if pressure.epoch and pressure.epoch < self._epoch:
            return False
        self._epoch = pressure.epoch or self._epoch
        if pressure.closed is not None:
            self.closed = pressure.closed
        return True


def read_pressure(message_type: MessageType, metadata: Any) -> Pressure:
    """Of a CREDIT_UPDATE, BACKPRESSURE or FLOW_UPDATE. Raises ValueError if it names two scopes."""
    if message_type is MessageType.FLOW_UPDATE:
        return _flow(metadata)
    scope, operation_id = _scope(metadata)
    if message_type is MessageType.BACKPRESSURE:
        return Pressure(scope, operation_id, True if metadata.pressure_level >= HARD_LEVEL else None)
    return Pressure(scope, operation_id, metadata.credit_window == 0)


def _scope(metadata: PressureMetadata) -> tuple[PressureScope, int]:
    flags = int(metadata.flags)
    if flags == _CONNECTION_FLAG | _OPERATION_FLAG:
        raise ValueError("connection and operation scope at once")
    if flags & _CONNECTION_FLAG:
        return PressureScope.CONNECTION, 0
    if flags & _OPERATION_FLAG:
        return PressureScope.OPERATION, metadata.scope_id
    return PressureScope.SESSION, 0


_FLOW_SCOPES = {
    FlowUpdateScopeKind.CONNECTION: PressureScope.CONNECTION,
    FlowUpdateScopeKind.SESSION: PressureScope.SESSION,
    FlowUpdateScopeKind.OPERATION: PressureScope.OPERATION,
}


def _flow(metadata: FlowUpdateMetadata) -> Pressure:
    """PAUSE, a hard level or a valid credit of 0 close; RESUME or a valid credit open; else it is advice."""
    credit = metadata.connection_credit + metadata.session_credit + metadata.operation_credit  # of its scope alone
    has_credit = bool(metadata.flags & FlowUpdateFlags.CREDIT_VALID)
    closed: bool | None = None
    if metadata.update_reason is FlowUpdateReason.RESUME or (has_credit and credit):
        closed = False
    if (
        metadata.update_reason is FlowUpdateReason.PAUSE
        or metadata.backpressure_level is FlowUpdateBackpressureLevel.HARD
        or (has_credit and not credit and metadata.update_reason is not FlowUpdateReason.RESUME)
    ):
        closed = True
    return Pressure(_FLOW_SCOPES[metadata.scope_kind], metadata.operation_id, closed, metadata.credit_epoch)
