# SPDX-License-Identifier: MIT
"""The run of one task: borrow the engine, ask once, observe how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from chatdelta import (
    BackendError,
    BackendFailure,
    Engine,
    ErrorInfo,
    ObservationSink,
    Observer,
    Outcome,
    RequestCancelled,
    TaskRequest,
    TaskResult,
    Usage,
)
from chatserving.host import EngineHost

Result = TypeVar("Result", bound=TaskResult)


class TaskRunner:
    """Runs tasks on the host's engine; it holds no request's state."""

    def __init__(
        self, host: EngineHost, sinks: Sequence[ObservationSink], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._host = host
        self._sinks = tuple(sinks)
        self._monotonic = monotonic

    async def run(
        self, request: TaskRequest, ask: Callable[[Engine], Awaitable[Result]], *, operation: str, model: str
    ) -> Result:
        """What `ask` gets of the engine for the request. Its errors pass through, observed."""
        observer = Observer(
            request_id=request.request_id,
            model=model,
            operation=operation,
            origin=request.origin,
            trace=None,
            started_s=self._monotonic(),
        )
        try:
            with self._host.operation(request.request_id) as engine:
                result = await ask(engine)
        except (asyncio.CancelledError, RequestCancelled) as exc:
            observer.cancel_reason = str(exc) or "cancelled"
            self._close(observer, Outcome.CANCELLED)
            raise
        except BackendError as exc:
            self._close(observer, Outcome.FAILED, error=exc.info())
            raise
        except Exception:
            self._close(observer, Outcome.FAILED, error=BackendFailure("internal error").info())
            raise
        self._close(observer, Outcome.COMPLETED, result.usage)
        return result

    def _close(
        self, observer: Observer, outcome: Outcome, usage: Usage | None = None, *, error: ErrorInfo | None = None
    ) -> None:
        observation = observer.close(outcome, usage or Usage(), self._monotonic(), error=error)
        for sink in self._sinks:
            sink.record(observation)
