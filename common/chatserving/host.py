# SPDX-License-Identifier: MIT
"""The one engine of the process: loading, replacing, freeing, its death, and who is using it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum

from chatdelta import Engine, EngineDead, ModelNotLoaded, Overloaded

log = logging.getLogger(__name__)

LoadKey = Hashable
RETRY_AFTER_MS = 1000
ABORT_S = 2.0  # for aborted streams to end by themselves


class HostState(Enum):
    UNINITIALIZED = "uninitialized"
    LOADING = "loading"
    READY = "ready"
    ERROR = "error"  # the engine died; final


class EngineHost:
    """Owns the loaded engine. All methods belong to one event loop.

    Listeners borrow the engine per operation with `operation()`; load and free wait for those or abort them.
    """

    def __init__(self, *, max_operations: int = 256, drain_s: float = 5.0) -> None:
        self._max_operations = max_operations
        self._drain_s = drain_s
        self._lock = asyncio.Lock()
        self._engine: Engine | None = None
        self._key: LoadKey = None
        self._state = HostState.UNINITIALIZED
        self._watch: asyncio.Task[None] | None = None
        self._operations: dict[asyncio.Task[object], str] = {}  # task → request id
        self._idle = asyncio.Event()
        self._idle.set()
        self._accepting = True
        self.loaded = asyncio.Event()  # set by the first successful load, for good
        self.died = asyncio.Event()

    @property
    def state(self) -> HostState:
        return self._state

    @property
    def in_flight(self) -> int:
        return len(self._operations)

    def engine(self) -> Engine:
        """The loaded engine. Raises ModelNotLoaded or EngineDead."""
        if self._state is HostState.ERROR:
            raise EngineDead("the engine has died; the backend is restarting")
        if self._engine is None:
            raise ModelNotLoaded("model not loaded: send LoadModel first")
        return self._engine

    @contextmanager
    def operation(self, request_id: str) -> Iterator[Engine]:
        """Borrow the engine for the current task. Raises also Overloaded at the limit or while draining."""
        engine = self.engine()
        if not self._accepting:
            raise Overloaded("the backend is shutting down", retry_after_ms=RETRY_AFTER_MS)
        if len(self._operations) >= self._max_operations:
            raise Overloaded(f"{self._max_operations} requests are in flight", retry_after_ms=RETRY_AFTER_MS)
        task = asyncio.current_task()
        assert task is not None, "operation() runs inside a task"
        self._operations[task] = request_id
        self._idle.clear()
        try:
            yield engine
        finally:
            del self._operations[task]
            if not self._operations:
                self._idle.set()

    async def load(self, key: LoadKey, open_engine: Callable[[], Awaitable[Engine]]) -> None:
        """Load an engine, first taking down one with another key; the same key again is done at once.

        A failed load leaves nothing running and the state as before any load; its error passes through.
        """
        async with self._lock:
            if self._state is HostState.ERROR:
                raise EngineDead("the engine has died; the backend is restarting")
            if self._engine is not None and key == self._key:
                return
            await self._take_down()
            self._state = HostState.LOADING
            try:
                engine = await open_engine()
            except BaseException:
                self._state = HostState.UNINITIALIZED
                raise
            self._engine, self._key = engine, key
            self._state = HostState.READY
            self._watch = asyncio.create_task(self._watch_death(engine))
            self.loaded.set()

    async def free(self) -> None:
        """Let what runs come to its end for the drain time, abort the rest, stop the engine. Idempotent."""
        async with self._lock:
            await self._take_down()

    async def close(self) -> None:
        """free(), for good: nothing is accepted any more, also while draining."""
        self._accepting = False
        await self.free()

    async def drain(self) -> None:
        """Wait for the operations in flight, at most the drain time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), self._drain_s)

    async def _take_down(self) -> None:
        engine = self._engine
        if engine is None:
            return
        self._engine, self._key = None, None
        if self._state is not HostState.ERROR:
            self._state = HostState.UNINITIALIZED
        await self.drain()
        await self._abort_rest(engine)
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait((self._watch,))  # not its CancelledError, whose traceback would hold the engine
            self._watch = None
        await engine.stop()

    async def _abort_rest(self, engine: Engine) -> None:
        """End what outlived the drain: by the engine, so that each stream gets its terminal; else by its task."""
        for request_id in tuple(self._operations.values()):
            await engine.abort(request_id)
        for last_resort in (False, True):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), ABORT_S)
                return
            if not last_resort:
                for task in tuple(self._operations):
                    task.cancel("shutdown")

    async def _watch_death(self, engine: Engine) -> None:
        await engine.wait_dead()
        log.critical("the engine has died; every request fails and the process ends")
        self._state = HostState.ERROR
        self.died.set()
