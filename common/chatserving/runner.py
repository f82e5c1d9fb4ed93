# SPDX-License-Identifier: MIT
"""The run of one request: borrow the engine, map its deltas, bound its time, observe it, name its terminal."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chatdelta import (
    BackendError,
    BackendFailure,
    Cancelled,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    GenerationRequest,
    InvalidRequest,
    Observation,
    ObservationSink,
    Observer,
    Origin,
    Outcome,
    RequestTimeout,
    ResponseHead,
    StreamEvent,
    StreamMapper,
    Terminal,
    Timings,
    TokenLogprob,
    TraceContext,
    Usage,
)
from chatserving.closing import closing
from chatserving.counts import Throughput, TokenCounts
from chatserving.host import EngineHost

log = logging.getLogger(__name__)

# Events, the usage so far, and whether more of them are there already and follow without any wait. Where that was said,
# the next events may be none.
Emit = Callable[[Sequence[StreamEvent], Usage, bool], Awaitable[None]]
LateTrace = Callable[[], TraceContext | None]


class PeerGone(Exception):
    """Raised by an `emit` whose peer takes nothing more; the request is abandoned, not failed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended, with what only its end knows."""

    terminal: Terminal
    timings: Timings | None
    logprobs: tuple[TokenLogprob, ...]  # of choice 0
    observation: Observation


class RequestRunner:
    """Runs requests on the host's engine. One for all listeners: its counts are the process's.

    `sinks` get every observation, its own count of the tokens first.
    """

    def __init__(
        self,
        host: EngineHost,
        sinks: Sequence[ObservationSink] = (),
        *,
        monotonic: Callable[[], float] = time.monotonic,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._counts = TokenCounts()
        self._running: dict[_Run, float] = {}  # since when
        self.sinks = (self._counts, *sinks)
        self._monotonic = monotonic
        self._unix_time = unix_time

    async def run(
        self,
        request: GenerationRequest,
        emit: Emit,
        *,
        operation: str,
        created: int | None = None,
        late_trace: LateTrace | None = None,
        arrived_s: float | None = None,
    ) -> Answer:
        """Serve one request; `emit` gets every event but the terminal, which is returned.

        What `emit` is told to follow may fail to come: who has kept events back for it still has to send them.
        `created` is the body's unix time in seconds, for callers that have named it already; now unless given.
        `late_trace` gives the trace to observe at the end; the engine keeps the one of the request's policy.
        `arrived_s` is the monotonic time it is observed from, for requests that have waited; now unless given.
        A request that fails returns `Failed`; only a cancelled task (CancelledError) or an `emit` without a peer
        (PeerGone) raises, after the engine's request was aborted.
        """
        run = _Run(
            self._host, request, emit, self._observer(request, operation, arrived_s), self._monotonic, late_trace
        )
        self._running[run] = self._monotonic()
        try:
            terminal = await run.serve(int(self._unix_time()) if created is None else created)
        except (asyncio.CancelledError, PeerGone) as exc:
            run.observer.cancel_reason = run.observer.cancel_reason or str(exc) or "cancelled"
            self._record(run, Outcome.CANCELLED, run.usage)
            raise
        finally:
            del self._running[run]
        match terminal:
            case Completed(usage=usage):
                observation = self._record(run, Outcome.COMPLETED, usage)
            case Cancelled(reason=reason, usage=usage):
                run.observer.cancel_reason = reason
                observation = self._record(run, Outcome.CANCELLED, usage)
            case Failed(error=error, usage=usage):
                observation = self._record(run, Outcome.FAILED, usage, error)
        return Answer(terminal, run.observer.timings, run.logprobs, observation)

    def _observer(self, request: GenerationRequest, operation: str, arrived_s: float | None) -> Observer:
        model = request.body.get("model")
        return Observer(
            request_id=request.request_id,
            model=model if isinstance(model, str) else "",
            operation=operation,
            origin=request.origin,
            trace=request.policy.trace,
            started_s=self._monotonic() if arrived_s is None else arrived_s,
        )

    def _record(self, run: _Run, outcome: Outcome, usage: Usage, error: ErrorInfo | None = None) -> Observation:
        if run.late_trace is not None:
            run.observer.trace = run.late_trace() or run.observer.trace
        return self._told(run.observer.close(outcome, usage, self._monotonic(), error=error))

    def _told(self, observation: Observation) -> Observation:
        for sink in self.sinks:
            sink.record(observation)
        return observation

    def throughput(self) -> Throughput:
        now_s = self._monotonic()
        return self._counts.throughput((run.usage, now_s - since_s) for run, since_s in self._running.items())

    def refuse(self, error: BackendError, *, request_id: str, operation: str, origin: Origin, model: str = "") -> None:
        """Record a request that was refused before it could be run."""
        now_s = self._monotonic()
        observer = Observer(
            request_id=request_id, model=model, operation=operation, origin=origin, trace=None, started_s=now_s
        )
        self._told(observer.close(Outcome.FAILED, Usage(), now_s, error=error.info()))


class _Run:
    """The state of one run()."""

    def __init__(
        self,
        host: EngineHost,
        request: GenerationRequest,
        emit: Emit,
        observer: Observer,
        monotonic: Callable[[], float],
        late_trace: LateTrace | None,
    ) -> None:
        self._host = host
        self.late_trace = late_trace
        self._request = request
        self._emit = emit
        self._monotonic = monotonic
        self._mapper: StreamMapper | None = None
        self.observer = observer

    @property
    def usage(self) -> Usage:
        return self._mapper.usage if self._mapper else Usage()

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        return tuple(self._mapper.logprobs()) if self._mapper else ()

    async def serve(self, created: int) -> Terminal:
        try:
            with self._host.operation(self._request.request_id) as engine:
                body = self._request.body
                model = str(body.get("model") or engine.info.model_names[0])
                head = response_head(self._request.request_id, created, model)
                mapper = self._mapper = StreamMapper(head, n=requested_choices(body))
                timeout = asyncio.timeout(self._request.policy.timeout_s)
                more_follows = False
                try:
                    async with timeout, closing(engine.generate(self._request)) as stream:
                        async for delta in stream:
                            if delta.timings is not None:
                                self.observer.timings = delta.timings
                            if delta.parser_failure is not None:
                                self.observer.parser_failure = delta.parser_failure
                            events = mapper.feed(delta)
                            if events:
                                self.observer.emitted(len(events), self._monotonic())
                            if events or more_follows:
                                more_follows = delta.more_follows
                                await self._emit(events, mapper.usage, more_follows)
                except TimeoutError as exc:
                    if not timeout.expired():
                        raise
                    raise RequestTimeout("the request did not finish in its time") from exc
                return await self._end(mapper.complete())
        except BackendError as exc:
            return await self._fail(exc)
        except (PeerGone, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("request failed unexpectedly", extra={"request_id": self._request.request_id})
            return await self._fail(BackendFailure("internal error; the log has the details"))

    async def _fail(self, error: BackendError) -> Terminal:
        if self._mapper is None:
            return Failed(error.info(), Usage())
        return await self._end(self._mapper.fail(error))

    async def _end(self, events: Sequence[Event]) -> Terminal:
        *before, terminal = events
        if before:
            self.observer.emitted(len(before), self._monotonic())
            await self._emit([event for event in before if not isinstance(event, Terminal)], self.usage, False)
        assert isinstance(terminal, Terminal)
        return terminal


def response_head(request_id: str, created: int, model: str) -> ResponseHead:
    return ResponseHead(f"chatcmpl-{request_id}", created, model)


def requested_choices(body: Mapping[str, Any]) -> int:
    """`n` of an OpenAI body. Raises InvalidRequest where it is no positive integer."""
    n = body.get("n")
    if n is None:
        return 1
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise InvalidRequest("n must be an integer of at least 1", code="invalid_body", param="n")
    return n
