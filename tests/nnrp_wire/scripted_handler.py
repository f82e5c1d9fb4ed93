# SPDX-License-Identifier: MIT
"""A carrier handler for tests: does what the submit's body says, and keeps a list of what it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nnrp.core import MessageType, PayloadKind, ResultFlags, ResultPushMetadata
from nnrp.runtime import ResultDropReasonCode, TraceContextMetadata

from nnrp_wire.carrier import Control, Ended, EndReason, Operation, OperationEnded, Session
from tests.support.waiting import until

EMPTY_SUCCESS = ResultPushMetadata(
    status_code=200,
    result_flags=ResultFlags.NONE,
    section_count=0,
    tile_count=0,
    active_profile_id=0,
    reserved0=0,
    inference_ms=0,
    queue_ms=0,
    server_total_ms=0,
    reserved1=0,
    tile_base_id=0,
    tile_index_bytes=0,
    payload_kind_bitmap=PayloadKind.NONE,
)
CAPABILITIES = ("control.supersede", "control.cancel_abort")
DROP_CODES = {
    EndReason.SUPERSEDED: ResultDropReasonCode.SUPERSEDED,
    EndReason.DEADLINE: ResultDropReasonCode.DEADLINE_EXPIRED,
    EndReason.SHUTDOWN: ResultDropReasonCode.TRANSPORT_CLOSED,
}


class ScriptedHandler:
    """The scripts a body may name:

    stream N    N events, then the result
    hold        one event, then wait to be ended, then the drop
    late        one event, then the result once `release` is set
    flood       events until ended; drip: the same, slowly
    mute        like hold, but never the drop
    raise       submitted() raises
    """

    def __init__(self) -> None:
        self.told: list[str] = []
        self.ended: list[Ended | None] = []
        self.sessions: list[Session] = []
        self.operations: list[Operation] = []
        self.traces: list[tuple[int, int | None]] = []  # trace id, operation id
        self.controls: list[Control] = []
        self.pushed = 0
        self.release = asyncio.Event()
        self._over: dict[Operation, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    # carrier.Handler

    def session_opened(self, session: Session) -> None:
        self.sessions.append(session)
        self.told.append("opened")

    def submitted(self, operation: Operation) -> None:
        self.operations.append(operation)
        self.told.append(f"submitted {operation.operation_id}")
        script = script_of(operation)
        if script == "raise":
            raise RuntimeError("scripted failure")
        self._over[operation] = asyncio.Event()
        self._tasks.append(self._loop.create_task(self._run(operation, script)))

    def operation_ended(self, operation: Operation) -> None:
        self.told.append(f"ended {operation.operation_id}")
        self.ended.append(operation.ended)
        self._over[operation].set()

    def traced(self, session: Session, metadata: TraceContextMetadata, operation: Operation | None) -> None:
        self.traces.append((metadata.trace_id, operation.operation_id if operation else None))

    def controlled(self, session: Session, control: Control, operation: Operation | None) -> None:
        self.controls.append(control)
        if control.message_type in (MessageType.CAPABILITY_NEGOTIATION, MessageType.DEGRADE_PROFILE):
            session.send_capabilities(control, CAPABILITIES)

    def session_closed(self, session: Session) -> None:
        self.told.append("closed")

    # For the test

    async def until(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        await until(condition, timeout_s=timeout_s)

    def reasons(self) -> list[EndReason]:
        return [ended.reason for ended in self.ended if ended]

    async def finished(self) -> None:
        """All scripts have run to their end; raises what one of them raised."""
        async with asyncio.timeout(10):
            await asyncio.gather(*self._tasks)

    async def forget(self) -> None:
        """Wait for the scripts, then keep nothing of what was told so far."""
        await self.finished()
        for kept in (
            self.told, self.ended, self.sessions, self.operations, self.traces, self.controls, self._over, self._tasks,
        ):  # fmt: skip
            kept.clear()

    # Scripts

    async def _run(self, operation: Operation, script: str) -> None:
        name, _, argument = script.partition(" ")
        try:
            if name == "stream":
                for number in range(int(argument)):
                    await self._push(operation, b'{"n":%d}' % number)
                await operation.finish(EMPTY_SUCCESS, b"")
            elif name in ("flood", "drip"):
                while True:
                    await self._push(operation, b"x" * 1000)
                    if name == "drip":
                        await asyncio.sleep(0.001)
            else:
                await self._push(operation, b"held")
                await (self.release if name == "late" else self._over[operation]).wait()
                if name == "late":
                    await operation.finish(EMPTY_SUCCESS, b"")
                    return
                raise OperationEnded(operation.ended)
        except OperationEnded as error:
            if error.ended is not None and name != "mute":
                self._drop(operation, error.ended)

    async def _push(self, operation: Operation, event: bytes) -> None:
        await operation.push(event)
        self.pushed += 1

    def _drop(self, operation: Operation, ended: Ended) -> None:
        code = DROP_CODES.get(ended.reason, ResultDropReasonCode.PEER_CANCELLED)
        operation.drop(code, ended.reason.value.encode())


def script_of(operation: Operation) -> str:
    """The payload of an SDK client's submit (behind prelude and descriptor), or the whole body of a hand-built one."""
    body = operation.body
    return (body[56:] if len(body) > 56 else body).decode()
