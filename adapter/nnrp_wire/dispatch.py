# SPDX-License-Identifier: MIT
"""The core's events as calls of the handler, and the handles that stand for sessions and operations there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, assert_never

from nnrp.runtime import ResultDropReasonCode

from nnrp_wire.carrier import Handler, OperationEnded
from nnrp_wire.handles import OperationHandle, SessionHandle, Writer
from nnrp_wire.operation import WireOperation
from nnrp_wire.session import WireSession
from nnrp_wire.state import (
    Controlled,
    Event,
    Interrupted,
    OperationState,
    Reopened,
    SessionClosed,
    SessionOpened,
    Submitted,
    Traced,
)

logger = logging.getLogger(__name__)


class Dispatcher:
    """Of one connection. A submit may wait `trace_hold_s` for its trace; all else is told at once and in order."""

    def __init__(self, handler: Handler, writer: Writer, trace_hold_s: float) -> None:
        self._handler = handler
        self._writer = writer
        self._trace_hold_s = trace_hold_s
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[WireSession, SessionHandle] = {}
        self._held: dict[OperationHandle, asyncio.TimerHandle] = {}

    def dispatch(self, event: Event) -> None:
        match event:
            case SessionOpened(core):
                session = self._sessions[core] = SessionHandle(core, self._writer)
                self._call(None, self._handler.session_opened, session)
            case Submitted(operation):
                self._submitted(operation)
            case Interrupted(operation):
                self._interrupted(operation)
            case Traced(core, metadata, operation):
                self._about(self._handler.traced, core, metadata, operation)
            case Controlled(core, control, operation):
                self._about(self._handler.controlled, core, control, operation)
            case Reopened():
                pass  # the shell has woken who waited
            case SessionClosed(core):
                self._call(None, self._handler.session_closed, self._sessions.pop(core))
            case _:
                assert_never(event)

    def _submitted(self, core: WireOperation) -> None:
        session = self._sessions[core.session]
        operation = session.operations[core.operation_id] = OperationHandle(core, session, self._writer)
        if core.own_trace is not None or self._trace_hold_s <= 0:
            self._call(operation, self._handler.submitted, operation)
            return
        # SDK clients can send the trace of an operation only after its submit.
        self._held[operation] = self._loop.call_later(self._trace_hold_s, self._release, operation)

    def _release(self, operation: OperationHandle) -> None:
        """Tell the handler of a submit that waited for its trace; the rest of its events then follow in order."""
        timer = self._held.pop(operation, None)
        if timer is not None:
            timer.cancel()
            self._call(operation, self._handler.submitted, operation)

    def _interrupted(self, core: WireOperation) -> None:
        operation = self._sessions[core.session].operations.get(core.operation_id)
        if operation is None:  # the handler has sent its terminal meanwhile
            return
        self._release(operation)
        self._call(operation, self._handler.operation_ended, operation)
        if core.state is OperationState.GONE:
            operation.session.operations.pop(core.operation_id, None)

    def _about(
        self, method: Callable[[Any, Any, Any], None], core: WireSession, what: Any, target: WireOperation | None
    ) -> None:
        session = self._sessions[core]
        operation = None if target is None else session.operations.get(target.operation_id)
        if target is not None and operation is None:
            return
        if operation is not None:
            self._release(operation)
        self._call(operation, method, session, what, operation)

    def _call(self, operation: OperationHandle | None, method: Callable[..., None], *args: Any) -> None:
        """A handler's failure costs the operation concerned, never the connection."""
        try:
            method(*args)
        except Exception:
            logger.exception("%s: the handler failed", self._writer.connection_id)
            if operation is not None:
                with suppress(OperationEnded):
                    operation.drop(ResultDropReasonCode.TRANSPORT_CLOSED)
