# SPDX-License-Identifier: MIT
"""A task per request that does nothing but drain the engine's stream into a bounded queue.

The engine merges the deltas of a consumer that is late; a consumer that only drains is hardly ever late. When the
queue is full the pump waits, the engine's collector merges, and memory stays bounded by the length of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

from chatserving.closing import closing

T = TypeVar("T")
QUEUE_SIZE = 64


class Pump(Generic[T]):
    """Iterate `stream` through a queue. Use as an async context manager: leaving it closes the stream to its end."""

    def __init__(self, stream: AsyncGenerator[T, None], *, size: int = QUEUE_SIZE) -> None:
        self._stream = stream
        self._queue: asyncio.Queue[T | None] = asyncio.Queue(size)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Pump[T]:
        self._task = asyncio.create_task(self._drain())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # seen already by the consumer, or of no interest any more

    def __aiter__(self) -> Pump[T]:
        return self

    async def __anext__(self) -> T:
        item = await self._queue.get()
        if item is not None:
            return item
        assert self._task is not None
        await self._task  # raises what the stream raised
        raise StopAsyncIteration

    async def _drain(self) -> None:
        try:
            async with closing(self._stream) as stream:
                async for item in stream:
                    await self._queue.put(item)
        finally:
            await self._put_end()

    async def _put_end(self) -> None:
        """None marks the end. A cancelled pump has no consumer any more, so it must not wait for room."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return
        await self._queue.put(None)
