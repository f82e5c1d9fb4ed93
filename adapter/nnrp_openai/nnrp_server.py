# SPDX-License-Identifier: MIT
"""The profile as a carrier's Handler: one task per operation, bounded, and exactly one terminal for each.

Who ends an operation is decided in the carrier, by one state. While it is live our task may push and finish; once it
is ended push and finish raise OperationEnded, the task is cancelled, and `_drop` sends the one terminal left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from nnrp.core import ResultPushMetadata
from nnrp.runtime import ResultDropReasonCode, TraceContextMetadata

from chatdelta import BackendError, BackendFailure, ErrorCode, Failed, Overloaded, Usage
from chatserving import PeerGone
from nnrp_openai.adapter import ChatAdapter, Reply
from nnrp_openai.admission import Admission
from nnrp_openai.controls import obey, opening_priority
from nnrp_openai.encoding import Times, encode_cancelled, encode_terminal
from nnrp_openai.endings import ENDINGS, Ending, drop_diagnostic, ending_trace
from nnrp_openai.envelope import Submit, decode_submit
from nnrp_openai.objects import ControlRefused
from nnrp_openai.profile import CAPABILITIES_GET, ProfileLimits, ReasonCode, Stage
from nnrp_openai.progress import Progress
from nnrp_openai.terms import BudgetSpent, Terms
from nnrp_openai.work import SessionWorks, Work
from nnrp_wire.carrier import Control, Ended, EndReason, Operation, OperationEnded, Session
from nnrp_wire.counts import FrameCounts

log = logging.getLogger(__name__)


class ProfileHandler:
    """carrier.Handler for openai-compatible/1. `token` is required of every request unless None.

    `frames`: where the listener counts what it refuses; what is refused here counts there, too.
    """

    def __init__(
        self,
        adapter: ChatAdapter,
        *,
        limits: ProfileLimits | None = None,
        token: str | None = None,
        frames: FrameCounts | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._adapter = adapter
        self._limits = limits or ProfileLimits()
        self._token = token
        self._frames = frames or FrameCounts()
        self._monotonic = monotonic
        self._admission = Admission(self._limits)
        self._sessions: dict[int, SessionWorks] = {}  # by session serial
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_draining = False

    @property
    def in_flight(self) -> int:
        """Operations that still have a task of ours."""
        return sum(len(session.works) for session in self._sessions.values())

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
        for work in [work for session in self._sessions.values() for work in session.works.values()]:
            if work.operation.ended is None:
                self._end(work.operation, Ended(EndReason.SHUTDOWN))
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    # carrier.Handler

    def session_opened(self, session: Session) -> None:
        log.debug("session %d of %s opened by %s", session.session_id, session.connection_id, session.peer)

    def session_closed(self, session: Session) -> None:
        log.debug("session %d of %s closed", session.session_id, session.connection_id)
        works = self._sessions.get(session.serial)
        if works is None:
            return
        works.is_closed = True  # what still cleans up forgets it
        if not works.works:
            del self._sessions[session.serial]

    def submitted(self, operation: Operation) -> None:
        serial = operation.session.serial
        works = self._works(operation.session)
        priority = opening_priority(operation.session, self._adapter.info)
        work = Work(operation, Terms(self._monotonic(), priority, works.token_budget))
        refusal = self._refusal(operation)
        works.works[operation.operation_id] = work
        if refusal is None:
            self._admission.enter(serial)
        work.task = self._own(self._serve(work, refusal))
        # A task cancelled before its first step runs no `finally`: the books are kept from outside.
        work.task.add_done_callback(lambda _task: self._forget(operation, is_admitted=refusal is None))

    def operation_ended(self, operation: Operation) -> None:
        assert operation.ended is not None, "the carrier sets `ended` first"
        self._end(operation, operation.ended)

    def traced(self, session: Session, metadata: TraceContextMetadata, operation: Operation | None) -> None:
        # Nothing to store: the carrier keeps the trace; dispatch reads it once, the observation at the end.
        scope = "session" if operation is None else f"operation {operation.operation_id}"
        log.debug("trace for %s of session %d, %d attribute bytes", scope, session.session_id, metadata.body_bytes)

    def controlled(self, session: Session, control: Control, operation: Operation | None) -> None:
        works = self._works(session)
        work = None if operation is None else works.works.get(operation.operation_id)
        log.debug("%s (session %d, frame %d)", control.message_type.name, session.session_id, control.frame_id)
        try:
            obey(session, control, works, work, self._adapter.info)
        except ControlRefused as exc:
            self._frames.refuse(control.message_type, exc.code)
            session.send_error(exc.code, str(exc), frame_id=control.frame_id)

    def _works(self, session: Session) -> SessionWorks:
        return self._sessions.setdefault(session.serial, SessionWorks(self._limits.max_objects_per_session))

    # Serving

    def _refusal(self, operation: Operation) -> Overloaded | None:
        if self._is_draining:
            return Overloaded("the backend is shutting down", retry_after_ms=self._limits.retry_after_ms)
        return self._admission.refusal(operation.session.serial, replaces=operation.replaces)

    async def _serve(self, work: Work, refusal: Overloaded | None) -> None:
        """Answer one operation. Whatever ends it from outside ends this too, and `_drop` has the last word."""
        operation = work.operation
        try:
            reply = self._refuse(work, refusal) if refusal is not None else await self._answer(work)
            self._announce_retry(operation, reply)
            await operation.finish(*_encoded(reply, operation, self._monotonic() - work.terms.arrived_s))
        except BudgetSpent as exc:
            diagnostic = encode_cancelled(
                str(exc), source="server", operation_id=operation.operation_id, backend_aborted=True
            )
            self._drop_live(operation, ResultDropReasonCode.BUDGET_EXCEEDED, diagnostic)
        except (OperationEnded, PeerGone) as exc:
            if operation.ended is None:  # nobody ended it, so we have tried a second terminal
                log.error("operation %d got two terminals from us: %s", operation.operation_id, exc)

    async def _answer(self, work: Work) -> Reply:
        """How the request ended, as a value; only what comes from outside raises."""
        operation = work.operation
        try:
            submit = decode_submit(operation.metadata, operation.body, self._limits, self._token)
            if submit.operation == CAPABILITIES_GET:
                return self._adapter.capabilities()
            progress = self._progress(operation, submit)
            try:
                return await self._run(work, submit, progress)
            finally:
                progress.close()
        except BackendError as exc:
            return self._refuse(work, exc)
        except PeerGone:
            raise
        except Exception:
            log.exception("operation %d failed unexpectedly", operation.operation_id)
            return _failed(BackendFailure("internal error; the log has the details"))

    def _progress(self, operation: Operation, submit: Submit) -> Progress:
        """A silent quic connection dies by itself, so there a sign of life comes unasked."""
        wanted = submit.progress or operation.session.transport == "quic"
        progress = Progress(
            operation,
            announces=submit.progress,
            interval_s=self._limits.progress_interval_s if wanted else None,
        )
        progress.reach(Stage.ADMITTED)
        return progress

    async def _run(self, work: Work, submit: Submit, progress: Progress) -> Reply:
        """Wait for a trace and for a place at the engine, then dispatch. `timeout_s` counts from the arrival."""
        operation = work.operation
        if self._limits.trace_hold_s > 0 and operation.trace is None:
            await asyncio.sleep(self._limits.trace_hold_s)
        async with self._admission.slot(operation.session.serial, timeout_s=self._left(work, submit)):
            progress.reach(Stage.EXECUTING)
            work.dispatch()
            try:
                timeout_s = self._left(work, submit)
                return await self._adapter.run(submit, operation, work.terms, progress, timeout_s=timeout_s)
            finally:
                work.leave_engine()

    def _left(self, work: Work, submit: Submit) -> float | None:
        """Seconds of the request's time that are left."""
        if submit.timeout_s is None:
            return None
        return max(0.0, work.terms.arrived_s + submit.timeout_s - self._monotonic())

    def _refuse(self, work: Work, error: BackendError) -> Reply:
        self._adapter.refused(error, work.operation)
        return _failed(error)

    def _announce_retry(self, operation: Operation, reply: Reply) -> None:
        terminal = reply.terminal
        if not isinstance(terminal, Failed) or terminal.error.kind is not ErrorCode.OVERLOADED:
            return
        delay_ms = terminal.error.retry_after_ms
        reason = ReasonCode.SHUTDOWN if self._is_draining else ReasonCode.BUDGET_EXCEEDED
        operation.session.retry_after(self._limits.retry_after_ms if delay_ms is None else delay_ms, reason=reason)

    # Ending from outside

    def _end(self, operation: Operation, ended: Ended) -> None:
        works = self._sessions.get(operation.session.serial)
        work = None if works is None else works.works.get(operation.operation_id)
        if work is not None and work.task is not None:
            work.task.cancel(ended.reason.value)
        ending = ENDINGS[ended.reason]
        if ending is None:
            return
        if work is None or not work.is_at_engine:
            _drop(operation, ended, ending, backend_aborted=False)
        elif ending.awaits_abort:
            self._drop_once_aborted(work, ended, ending)
        else:
            _drop(operation, ended, ending, backend_aborted=None)

    def _drop_once_aborted(self, work: Work, ended: Ended, ending: Ending) -> None:
        """The drop when the engine has let go of `work`, or when that takes too long.

        The cancelled task itself sends it on its way out: another one that waited for it would be turns of the loop
        behind, and a turn can be milliseconds.
        """

        def drop(*, aborted: bool) -> None:
            waiting.cancel()
            work.after_engine(None)
            _drop(work.operation, ended, ending, backend_aborted=aborted)

        waiting = asyncio.get_running_loop().call_later(self._limits.abort_wait_s, lambda: drop(aborted=False))
        work.after_engine(lambda: drop(aborted=True))

    def _drop_live(self, operation: Operation, code: ResultDropReasonCode, diagnostic: bytes) -> None:
        """End an operation by our own decision; somebody else may have ended it meanwhile."""
        try:
            operation.drop(code, diagnostic)
        except OperationEnded:
            log.debug("operation %d was ended by its peer at the same time", operation.operation_id)

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

    def _forget(self, operation: Operation, *, is_admitted: bool) -> None:
        serial = operation.session.serial
        works = self._sessions[serial]
        del works.works[operation.operation_id]
        if works.is_closed and not works.works:
            del self._sessions[serial]
        if is_admitted:
            self._admission.leave(serial)


def _failed(error: BackendError) -> Reply:
    return Reply(Failed(error.info(), Usage()))


def _encoded(reply: Reply, operation: Operation, total_s: float) -> tuple[ResultPushMetadata, bytes]:
    times = Times(total_s, reply.timings)
    try:
        return encode_terminal(reply.terminal, operation_id=operation.operation_id, times=times)
    except Exception:
        log.exception("the answer of operation %d cannot be encoded", operation.operation_id)
        failure = _failed(BackendFailure("internal error; the log has the details")).terminal
        return encode_terminal(failure, operation_id=operation.operation_id, times=times)


def _drop(operation: Operation, ended: Ended, ending: Ending, *, backend_aborted: bool | None) -> None:
    """The terminal of an ended operation."""
    diagnostic = drop_diagnostic(ended, ending, operation_id=operation.operation_id, backend_aborted=backend_aborted)
    if ending.traced:
        operation.session.send_trace(ending_trace(operation), frame_id=0)
    try:
        operation.drop(ending.code, diagnostic, retryable=ending.retryable)
    except OperationEnded:
        # The carrier itself had the last word, as at the end of a session's close.
        log.debug("operation %d already has its terminal", operation.operation_id)
