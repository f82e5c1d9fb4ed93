# SPDX-License-Identifier: MIT
"""The profile as a carrier's Handler: one task per operation, bounded, and exactly one terminal for each.

Who ends an operation is decided in the carrier, by one state. While it is live our task may push and finish; once it
is ended push and finish raise OperationEnded, the task is cancelled, and `_drop` sends the one terminal left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from nnrp.core import ResultPushMetadata
from nnrp.runtime import TraceContextMetadata

from chatdelta import BackendError, BackendFailure, ErrorCode, Failed, Overloaded, Usage
from chatserving import Answer, PeerGone
from nnrp_openai.adapter import ChatAdapter
from nnrp_openai.encoding import Times, encode_terminal
from nnrp_openai.endings import ENDINGS, Ending, drop_diagnostic, ending_trace
from nnrp_openai.envelope import decode_submit
from nnrp_openai.profile import ProfileLimits, ReasonCode
from nnrp_wire.carrier import Control, Ended, EndReason, Operation, OperationEnded, Session

log = logging.getLogger(__name__)

_Key = tuple[int, int]  # session serial, operation id


class _Work:
    """One operation being served. `is_at_engine` is true between dispatch and the engine's own end."""

    __slots__ = ("is_at_engine", "operation", "task")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.is_at_engine = False
        self.task: asyncio.Task[None] | None = None


class ProfileHandler:
    """carrier.Handler for openai-compatible/1. `token` is required of every request unless None."""

    def __init__(
        self,
        adapter: ChatAdapter,
        *,
        limits: ProfileLimits | None = None,
        token: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._adapter = adapter
        self._limits = limits or ProfileLimits()
        self._token = token
        self._monotonic = monotonic
        self._works: dict[_Key, _Work] = {}
        self._admitted: Counter[int] = Counter()  # by session serial
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_draining = False

    @property
    def in_flight(self) -> int:
        """Operations that still have a task of ours."""
        return len(self._works)

    # Lifetime

    def begin_drain(self) -> None:
        """Answer every later submit with an overload error."""
        self._is_draining = True

    async def drain(self, grace_s: float) -> None:
        """Refuse new work and let what runs come to its end, at most for `grace_s`."""
        self.begin_drain()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=grace_s)

    async def close(self) -> None:
        """End what is left, as a shutdown; each request was aborted in the engine when this returns."""
        self.begin_drain()
        for work in tuple(self._works.values()):
            if work.operation.ended is None:
                self._end(work.operation, Ended(EndReason.SHUTDOWN))
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    # carrier.Handler

    def session_opened(self, session: Session) -> None:
        log.debug("session %d of %s opened by %s", session.session_id, session.connection_id, session.peer)

    def session_closed(self, session: Session) -> None:
        log.debug("session %d of %s closed", session.session_id, session.connection_id)

    def submitted(self, operation: Operation) -> None:
        work = _Work(operation)
        key = _key(operation)
        refusal = self._refusal(operation.session)
        self._works[key] = work
        if refusal is None:
            self._admitted[operation.session.serial] += 1
        work.task = self._own(self._serve(work, refusal))
        # A task cancelled before its first step runs no `finally`: the books are kept from outside.
        work.task.add_done_callback(lambda _task: self._forget(key, is_admitted=refusal is None))

    def operation_ended(self, operation: Operation) -> None:
        assert operation.ended is not None, "the carrier sets `ended` first"
        self._end(operation, operation.ended)

    def traced(self, session: Session, metadata: TraceContextMetadata, operation: Operation | None) -> None:
        # Nothing to store: the carrier keeps the trace, and dispatch reads it once.
        scope = "session" if operation is None else f"operation {operation.operation_id}"
        log.debug("trace for %s of session %d, %d attribute bytes", scope, session.session_id, metadata.body_bytes)

    def controlled(self, session: Session, control: Control, operation: Operation | None) -> None:
        operation_id = 0 if operation is None else operation.operation_id
        log.debug("%s ignored (session %d, operation %d)", control.message_type.name, session.session_id, operation_id)

    # Serving

    def _refusal(self, session: Session) -> Overloaded | None:
        limits = self._limits
        if self._is_draining:
            return Overloaded("the backend is shutting down", retry_after_ms=limits.retry_after_ms)
        if self._admitted[session.serial] >= limits.max_operations_per_session:
            text = f"{limits.max_operations_per_session} operations of this session are in flight"
            return Overloaded(text, retry_after_ms=limits.retry_after_ms)
        if self._admitted.total() >= limits.max_operations:
            text = f"{limits.max_operations} operations are in flight"
            return Overloaded(text, retry_after_ms=limits.retry_after_ms)
        return None

    async def _serve(self, work: _Work, refusal: Overloaded | None) -> None:
        """Answer one operation. Whatever ends it from outside ends this too, and `_drop` has the last word."""
        started_s = self._monotonic()
        operation = work.operation
        try:
            answer = _failed(refusal) if refusal is not None else await self._answer(work)
            self._announce_retry(operation, answer)
            await operation.finish(*_encoded(answer, operation, self._monotonic() - started_s))
        except (OperationEnded, PeerGone) as exc:
            if operation.ended is None:  # nobody ended it, so we have tried a second terminal
                log.error("operation %d got two terminals from us: %s", operation.operation_id, exc)

    async def _answer(self, work: _Work) -> Answer:
        """How the request ended, as a value; only what comes from outside raises."""
        operation = work.operation
        try:
            submit = decode_submit(operation.metadata, operation.body, self._limits, self._token)
            if self._limits.trace_hold_s > 0 and operation.trace is None:
                await asyncio.sleep(self._limits.trace_hold_s)
            work.is_at_engine = True
            answer = await self._adapter.run(submit, operation)
            work.is_at_engine = False
            return answer
        except BackendError as exc:
            work.is_at_engine = False
            return _failed(exc)
        except PeerGone:
            raise
        except Exception:
            work.is_at_engine = False
            log.exception("operation %d failed unexpectedly", operation.operation_id)
            return _failed(BackendFailure("internal error; the log has the details"))

    def _announce_retry(self, operation: Operation, answer: Answer) -> None:
        terminal = answer.terminal
        if not isinstance(terminal, Failed) or terminal.error.kind is not ErrorCode.OVERLOADED:
            return
        delay_ms = terminal.error.retry_after_ms
        reason = ReasonCode.SHUTDOWN if self._is_draining else ReasonCode.BUDGET_EXCEEDED
        operation.session.retry_after(self._limits.retry_after_ms if delay_ms is None else delay_ms, reason=reason)

    # Ending from outside

    def _end(self, operation: Operation, ended: Ended) -> None:
        work = self._works.get(_key(operation))
        request: asyncio.Task[None] | None = None
        if work is not None and work.task is not None:
            request = work.task if work.is_at_engine else None
            work.task.cancel(ended.reason.value)
        ending = ENDINGS[ended.reason]
        if ending is not None:
            self._own(self._drop(operation, ended, ending, request))

    async def _drop(
        self, operation: Operation, ended: Ended, ending: Ending, request: asyncio.Task[None] | None
    ) -> None:
        """The terminal of an ended operation; `request` is its cancelled task if that was at the engine."""
        aborted: bool | None = False
        if request is not None:
            if ending.awaits_abort:
                await asyncio.wait((request,), timeout=self._limits.abort_wait_s)
            aborted = _is_aborted(request) if ending.awaits_abort else None
        diagnostic = drop_diagnostic(ended, ending, operation_id=operation.operation_id, backend_aborted=aborted)
        if ending.traced:
            operation.session.send_trace(ending_trace(operation), frame_id=0)
        try:
            await operation.drop(ending.code, diagnostic, retryable=ending.retryable)
        except OperationEnded:
            # The carrier itself had the last word, as at the end of a session's close.
            log.debug("operation %d already has its terminal", operation.operation_id)

    # Tasks

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of an operation failed", exc_info=error)

    def _forget(self, key: _Key, *, is_admitted: bool) -> None:
        del self._works[key]
        if is_admitted:
            serial, _ = key
            self._admitted[serial] -= 1
            if not self._admitted[serial]:
                del self._admitted[serial]


def _key(operation: Operation) -> _Key:
    return operation.session.serial, operation.operation_id


def _failed(error: BackendError) -> Answer:
    return Answer(Failed(error.info(), Usage()), None, ())


def _encoded(answer: Answer, operation: Operation, total_s: float) -> tuple[ResultPushMetadata, bytes]:
    times = Times(total_s, answer.timings)
    try:
        return encode_terminal(answer.terminal, operation_id=operation.operation_id, times=times)
    except Exception:
        log.exception("the answer of operation %d cannot be encoded", operation.operation_id)
        failure = _failed(BackendFailure("internal error; the log has the details")).terminal
        return encode_terminal(failure, operation_id=operation.operation_id, times=times)


def _is_aborted(request: asyncio.Task[None]) -> bool:
    """Whether a cancelled request has closed its engine stream, which is its abort, without an error."""
    return request.cancelled() or (request.done() and request.exception() is None)
