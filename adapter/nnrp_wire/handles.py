# SPDX-License-Identifier: MIT
"""What a handler holds: the carrier seam's Session and Operation over the core's, with waiting added."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Protocol

from nnrp.core import ErrorCode, FrameSubmitMetadata, ResultPushMetadata
from nnrp.runtime import ResultDropReasonCode, TraceContextMetadata

from nnrp_wire.carrier import Control, Ended, EndReason
from nnrp_wire.operation import WireOperation
from nnrp_wire.session import WireSession
from nnrp_wire.state import OperationState

# Unique in the process by contract, across listeners and transports; hence not an object's field.
_serials = count(1)


class Pulse:
    """Wakes everybody who waits right now; who waits afterwards waits for the next one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()

    def fire(self) -> None:
        self._event.set()
        self._event = asyncio.Event()


class Flushable(Protocol):
    def flush(self) -> None: ...


class Flusher:
    """Flushes at the end of the turn of the loop who asked for it: one handle for all, since there are many a turn."""

    def __init__(self) -> None:
        self._asking: dict[Flushable, None] = {}

    def add(self, flushable: Flushable) -> None:
        if not self._asking:
            asyncio.get_running_loop().call_soon(self._flush)
        self._asking[flushable] = None

    def _flush(self) -> None:
        asking, self._asking = self._asking, {}
        for flushable in asking:
            try:
                flushable.flush()
            except Exception as exc:  # of one alone, as if it had its own handle
                asyncio.get_running_loop().call_exception_handler({"message": "a flush failed", "exception": exc})


class Writer(Protocol):
    """The shell as its handles see it."""

    connection_id: str
    transport_name: str
    peer: str

    @property
    def is_full(self) -> bool: ...
    @property
    def max_hold_s(self) -> float: ...
    async def writable(self) -> None: ...
    async def reopened(self) -> None: ...
    def pump(self) -> None: ...
    def schedule_flush(self) -> None: ...
    def flush(self) -> None: ...
    def terminal_sent(self) -> None: ...


class SessionHandle:
    """carrier.Session. Owns the handles of its operations that have no terminal yet."""

    def __init__(self, core: WireSession, writer: Writer) -> None:
        self._core = core
        self._writer = writer
        self.serial = next(_serials)
        self.operations: dict[int, OperationHandle] = {}

    @property
    def session_id(self) -> int:
        return self._core.session_id

    @property
    def connection_id(self) -> str:
        return self._writer.connection_id

    @property
    def transport(self) -> str:
        return self._writer.transport_name

    @property
    def peer(self) -> str:
        return self._writer.peer

    @property
    def priority_class(self) -> int:
        return int(self._core.request.priority_class)

    def send_trace(self, metadata: TraceContextMetadata, *, frame_id: int = 0) -> None:
        self._core.send_trace(metadata, frame_id)
        self._writer.schedule_flush()

    def retry_after(self, delay_ms: int, *, reason: int, diagnostic: bytes = b"") -> None:
        self._core.send_retry_after(delay_ms, reason, diagnostic)
        self._writer.schedule_flush()

    def send_capabilities(self, control: Control, tokens: Sequence[str]) -> None:
        self._core.send_capabilities(control, tokens)
        self._writer.schedule_flush()

    def send_error(self, code: ErrorCode, text: str, *, frame_id: int = 0) -> None:
        self._core.send_error(code, text, frame_id)
        self._writer.schedule_flush()


class OperationHandle:
    """carrier.Operation."""

    __slots__ = ("_core", "_writer", "session")

    def __init__(self, core: WireOperation, session: SessionHandle, writer: Writer) -> None:
        self._core = core
        self._writer = writer
        self.session = session

    @property
    def operation_id(self) -> int:
        return self._core.operation_id

    @property
    def frame_id(self) -> int:
        return self._core.frame_id

    @property
    def trace_id(self) -> int:
        return self._core.trace_id

    @property
    def metadata(self) -> FrameSubmitMetadata:
        return self._core.metadata

    @property
    def body(self) -> bytes:
        return self._core.body

    @property
    def trace(self) -> TraceContextMetadata | None:
        return self._core.trace

    @property
    def replaces(self) -> bool:
        return self._core.replaces

    @property
    def ended(self) -> Ended | None:
        return self._core.ended

    async def push(self, event: bytes) -> None:
        if self._writer.is_full or self._core.is_held:
            await self._wait_for_room()
        self._core.send_partial(event)
        self._writer.schedule_flush()

    def progress(self, stage: int, percent_x100: int = 0xFFFF) -> None:
        self._core.send_progress(stage, percent_x100)
        self._writer.schedule_flush()

    async def finish(self, metadata: ResultPushMetadata, body: bytes) -> None:
        if self._writer.is_full or self._core.is_held:
            await self._wait_for_room()
        self._core.send_result(metadata, body)
        self._sent_terminal()

    def drop(self, code: ResultDropReasonCode, diagnostic: bytes = b"", *, retryable: bool = False) -> None:
        self._core.send_drop(int(code), diagnostic, retryable=retryable)
        self._sent_terminal()
        self._writer.flush()  # who ended it waits for this, and the turns of a busy loop are long

    async def _wait_for_room(self) -> None:
        core = self._core
        while core.state is OperationState.LIVE:
            if core.is_held:
                await self._wait_for_credit()
            elif self._writer.is_full:
                await self._writer.writable()
            else:
                return

    async def _wait_for_credit(self) -> None:
        """A peer that gives no credit back for too long loses the operation."""
        core = self._core
        try:
            async with asyncio.timeout(self._writer.max_hold_s):
                while core.is_held and core.state is OperationState.LIVE:
                    await self._writer.reopened()
        except TimeoutError:
            core.end(Ended(EndReason.STALLED))
            self._writer.pump()

    def _sent_terminal(self) -> None:
        self.session.operations.pop(self._core.operation_id, None)
        self._writer.terminal_sent()
