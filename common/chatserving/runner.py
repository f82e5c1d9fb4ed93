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
    Event,
    Failed,
    GenerationRequest,
    InvalidRequest,
    ObservationSink,
    Observer,
    Outcome,
    RequestTimeout,
    StreamEvent,
    StreamMapper,
    Terminal,
    Timings,
    TokenLogprob,
    Usage,
)
from chatserving.closing import closing
from chatserving.host import EngineHost

log = logging.getLogger(__name__)

Emit = Callable[[Sequence[StreamEvent], Usage], Awaitable[None]]


class PeerGone(Exception):
    """Raised by an `emit` whose peer takes nothing more; the request is abandoned, not failed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended, with what only its end knows."""

    terminal: Terminal
    timings: Timings | None
    logprobs: tuple[TokenLogprob, ...]  # of choice 0


class RequestRunner:
    """Runs requests on the host's engine. One per listener or one for both: it holds no request's state."""

    def __init__(
        self,
        host: EngineHost,
        sinks: Sequence[ObservationSink] = (),
        *,
        monotonic: Callable[[], float] = time.monotonic,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._sinks = tuple(sinks)
        self._monotonic = monotonic
        self._unix_time = unix_time

    async def run(self, request: GenerationRequest, emit: Emit, *, operation: str) -> Answer:
        """Serve one request; `emit` gets every event but the terminal, which is returned.

        A request that fails returns `Failed`; only a cancelled task (CancelledError) or an `emit` without a peer
        (PeerGone) raises, after the engine's request was aborted.
        """
        run = _Run(self._host, request, emit, self._observer(request, operation), self._monotonic)
        try:
            answer = await run.serve(int(self._unix_time()))
        except (asyncio.CancelledError, PeerGone) as exc:
            run.observer.cancel_reason = run.observer.cancel_reason or str(exc) or "cancelled"
            self._record(run, Outcome.CANCELLED, run.usage)
            raise
        match answer.terminal:
            case Completed(usage=usage):
                self._record(run, Outcome.COMPLETED, usage)
            case Cancelled(reason=reason, usage=usage):
                run.observer.cancel_reason = reason
                self._record(run, Outcome.CANCELLED, usage)
            case Failed(error=error, usage=usage):
                self._record(run, Outcome.FAILED, usage, error_code=error.code)
        return answer

    def _observer(self, request: GenerationRequest, operation: str) -> Observer:
        model = request.body.get("model")
        return Observer(
            request_id=request.request_id,
            model=model if isinstance(model, str) else "",
            operation=operation,
            origin=request.origin,
            trace=request.policy.trace,
            started_s=self._monotonic(),
        )

    def _record(self, run: _Run, outcome: Outcome, usage: Usage, *, error_code: str | None = None) -> None:
        observation = run.observer.close(outcome, usage, self._monotonic(), error_code=error_code)
        for sink in self._sinks:
            sink.record(observation)


class _Run:
    """The state of one run()."""

    def __init__(
        self,
        host: EngineHost,
        request: GenerationRequest,
        emit: Emit,
        observer: Observer,
        monotonic: Callable[[], float],
    ) -> None:
        self._host = host
        self._request = request
        self._emit = emit
        self._monotonic = monotonic
        self._mapper: StreamMapper | None = None
        self.observer = observer

    @property
    def usage(self) -> Usage:
        return self._mapper.usage if self._mapper else Usage()

    async def serve(self, created: int) -> Answer:
        try:
            with self._host.operation(self._request.request_id) as engine:
                mapper = self._mapper = StreamMapper(
                    response_id=f"chatcmpl-{self._request.request_id}",
                    created=created,
                    model=str(self._request.body.get("model") or engine.info.model_names[0]),
                    n=requested_choices(self._request.body),
                )
                timeout = asyncio.timeout(self._request.policy.timeout_s)
                try:
                    async with timeout, closing(engine.generate(self._request)) as stream:
                        async for delta in stream:
                            if delta.timings is not None:
                                self.observer.timings = delta.timings
                            if delta.parser_failure is not None:
                                self.observer.parser_failure = delta.parser_failure
                            if events := mapper.feed(delta):
                                await self._send(events)
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

    async def _fail(self, error: BackendError) -> Answer:
        if self._mapper is None:
            return Answer(Failed(error.info(), Usage()), None, ())
        return await self._end(self._mapper.fail(error))

    async def _end(self, events: Sequence[Event]) -> Answer:
        *before, terminal = events
        if before:
            await self._send([event for event in before if not isinstance(event, Terminal)])
        assert isinstance(terminal, Terminal)
        assert self._mapper is not None
        return Answer(terminal, self.observer.timings, tuple(self._mapper.logprobs()))

    async def _send(self, events: Sequence[StreamEvent]) -> None:
        self.observer.emitted(len(events), self._monotonic())
        await self._emit(events, self.usage)


def requested_choices(body: Mapping[str, Any]) -> int:
    """`n` of an OpenAI body. Raises InvalidRequest where it is no positive integer."""
    n = body.get("n")
    if n is None:
        return 1
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise InvalidRequest("n must be an integer of at least 1", code="invalid_body", param="n")
    return n
