# SPDX-License-Identifier: MIT
"""Which of our requests are in vLLM's engine, and under which ids there: one of ours may be many of its requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from chatdelta import BackendFailure, RequestCancelled
from chatserving.closing import closing

Submit = Callable[[str], AsyncGenerator[Any, None]]  # an engine request id → that request's outputs


class InFlight:
    """Requests of ours that run, and their way out of the engine."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._engine_ids: dict[str, Sequence[str]] = {}

    @asynccontextmanager
    async def holding(self, request_id: str, engine_ids: Sequence[str]) -> AsyncIterator[None]:
        """Around the use of the requests' outputs. On exit they are gone from the engine, whatever happened."""
        self._engine_ids[request_id] = engine_ids
        try:
            yield
        except BaseException:
            # vLLM's streams abort when they are closed, but not if cancelled while still handing their request over.
            if not self._llm.errored:
                await self._llm.abort(list(engine_ids))
            raise
        finally:
            del self._engine_ids[request_id]

    async def abort(self, request_id: str) -> bool:
        """Abort all of a request; whether it was there."""
        engine_ids = self._engine_ids.get(request_id)
        if engine_ids and not self._llm.errored:
            await self._llm.abort(list(engine_ids))
        return engine_ids is not None

    async def gather(self, request_id: str, submits: Sequence[Submit]) -> list[Any]:
        """The last output of each submitted request, in order; all of them run together.

        The first that fails ends the others. Raises RequestCancelled if they were aborted.
        """
        engine_ids = [f"{request_id}-{number}" for number in range(len(submits))]
        async with self.holding(request_id, engine_ids):
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(_last(submit(engine_id)))
                        for submit, engine_id in zip(submits, engine_ids, strict=True)
                    ]
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None
        return [task.result() for task in tasks]


async def _last(stream: AsyncGenerator[Any, None]) -> Any:
    async with closing(stream) as outputs:
        async for output in outputs:
            last = output
    _refuse_unfinished(last)
    return last


def _refuse_unfinished(output: Any) -> None:
    """An aborted or failed request ends with an output too: one without its result."""
    if isinstance(output.outputs, list):
        reason = output.outputs[0].finish_reason
    else:
        reason = "abort" if output.outputs.data.numel() == 0 else "stop"
    if reason == "abort":
        raise RequestCancelled("the request was aborted: the model is being unloaded or the backend stops")
    if reason == "error":
        raise BackendFailure("the engine failed this request; the log has the details")
