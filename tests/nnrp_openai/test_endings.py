# SPDX-License-Identifier: MIT
"""Operations ended from outside: one drop of the right kind, the engine's request aborted, nothing afterwards."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from nnrp.runtime import TraceContextMetadata

from chatdelta import EngineDelta, GenerationRequest, Outcome
from chatdelta.testing import ScriptedEngine, Step, Wait, text_script
from chatserving import EngineHost, RequestRunner
from nnrp_openai import ChatAdapter, ProfileHandler, ProfileLimits
from nnrp_openai.endings import ENDINGS
from nnrp_wire.carrier import EndReason
from tests.nnrp_openai.fake_carrier import FakeOperation, FakeSession, envelope, fake_operation
from tests.nnrp_openai.serving import Served, serving
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def nothing_goes_wrong_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A failed task or a second terminal is an error in the log."""
    yield
    errors = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    assert [record.getMessage() for record in errors if record.levelno >= logging.ERROR] == []


def held(_request: GenerationRequest) -> list[Step]:
    """One event, then nothing for ever."""
    return [*text_script("a")[:1], Wait(asyncio.Event())]


async def in_mid_stream(served: Served, operation: FakeOperation) -> None:
    """Submit and wait for the first event."""
    before = len(operation.session.sent)
    served.handler.submitted(operation)
    await until(lambda: len(operation.session.sent) > before)


def cancelled(reason: str, source: str, aborted: bool | None, operation_id: int = 7) -> dict[str, Any]:
    return {
        "type": "response.cancelled",
        "reason": reason,
        "source": source,
        "operation_id": operation_id,
        "backend_aborted": aborted,
    }


# end reason, reason code of its frame → drop code, reason, source, backend_aborted, retryable, traced
ROWS: dict[str, tuple[EndReason, int, tuple[int, str, str, bool | None, bool, bool]]] = {
    "CANCEL": (EndReason.CANCELLED, 1, (3, "user_cancelled", "peer", True, False, True)),
    "CANCEL without a reason": (EndReason.CANCELLED, 0, (3, "user_cancelled", "peer", True, False, True)),
    "CANCEL for budget": (EndReason.CANCELLED, 4, (3, "budget_exceeded", "peer", True, False, True)),
    "CANCEL for no reason we know": (EndReason.CANCELLED, 999, (3, "user_cancelled", "peer", True, False, True)),
    "ABORT": (EndReason.ABORTED, 0, (3, "aborted", "peer", None, False, True)),
    "ABORT as superseded": (EndReason.ABORTED, 2, (3, "superseded", "peer", None, False, True)),
    "SUPERSEDE": (EndReason.SUPERSEDED, 2, (2, "superseded", "peer", True, False, False)),
    "DEADLINE": (EndReason.DEADLINE, 0, (1, "deadline_expired", "deadline", True, False, False)),
    "stalled": (EndReason.STALLED, 0, (4, "stalled", "server", None, False, False)),
    "SESSION_CLOSE": (EndReason.SESSION_CLOSED, 0, (3, "session_closed", "peer", True, False, False)),
    "shutdown": (EndReason.SHUTDOWN, 0, (8, "shutdown", "server", True, True, False)),
}


@pytest.mark.parametrize(("reason", "reason_code", "expected"), ROWS.values(), ids=ROWS.keys())
async def test_mid_stream(
    reason: EndReason, reason_code: int, expected: tuple[int, str, str, bool | None, bool, bool]
) -> None:
    code, word, source, aborted, retryable, is_traced = expected
    async with serving(held) as served:
        operation = fake_operation(envelope())
        await in_mid_stream(served, operation)
        operation.end(served.handler, reason, reason_code)
        await until(lambda: operation.has_terminal and served.handler.in_flight == 0)
        _, *after = operation.session.sent
        traces = [what for kind, what in after if kind == "trace"]
        assert after[-1] == ("drop", (code, cancelled(word, source, aborted), retryable))
        assert len(after) == 1 + len(traces) == 1 + is_traced
        assert served.engine.aborted == [served.engine.requests[0].request_id]
        assert [(r.outcome, r.cancel_reason) for r in served.records.all] == [(Outcome.CANCELLED, reason.value)]


@pytest.mark.parametrize("reason", [reason for reason, ending in ENDINGS.items() if ending])
async def test_the_last_word_waits_for_the_engine_and_for_nothing_else(reason: EndReason) -> None:
    """One turn of the loop for the cancelled task; each more would be milliseconds where many stream."""
    async with serving(held) as served:
        operation = fake_operation(envelope())
        await in_mid_stream(served, operation)
        operation.end(served.handler, reason)
        await asyncio.sleep(0)
        assert operation.has_terminal


async def test_every_reason_has_a_row() -> None:
    assert {reason for reason, ending in ENDINGS.items() if ending} == {row[0] for row in ROWS.values()}
    assert set(ENDINGS) == set(EndReason)


async def test_a_disconnect_aborts_and_sends_nothing() -> None:
    async with serving(held) as served:
        operation = fake_operation(envelope())
        await in_mid_stream(served, operation)
        operation.end(served.handler, EndReason.DISCONNECTED)
        await until(lambda: served.handler.in_flight == 0)
        assert len(operation.session.sent) == 1
        assert served.engine.aborted == [served.engine.requests[0].request_id]


@pytest.mark.parametrize(
    ("header_id", "trace", "expected"),
    [
        (0, None, (7, 0)),
        (55, None, (55, 0)),
        (55, TraceContextMetadata(1, 2, 0, 0, 0, 0), (55, 2)),
    ],
    ids=["the operation id", "the submit's id", "a child of the client's span"],
)
async def test_the_trace_before_the_drop(
    header_id: int, trace: TraceContextMetadata | None, expected: tuple[int, int]
) -> None:
    async with serving(held) as served:
        operation = fake_operation(envelope())
        operation.trace_id, operation.trace = header_id, trace
        await in_mid_stream(served, operation)
        operation.end(served.handler, EndReason.CANCELLED)
        await until(lambda: operation.has_terminal)
    _, (kind, (frame_id, sent)), (last, _) = operation.session.sent
    assert (kind, frame_id, last) == ("trace", 0, "drop")
    assert (sent.trace_id, sent.parent_span_id) == expected
    assert sent.span_id
    sent.pack()


async def test_a_cancelled_session_gives_each_operation_its_own_drop() -> None:
    async with serving(held) as served:
        session = FakeSession()
        operations = [fake_operation(envelope(), session, operation_id=n) for n in (1, 2, 3)]
        for operation in operations:
            await in_mid_stream(served, operation)
        for operation in operations:
            operation.end(served.handler, EndReason.CANCELLED)
        await until(lambda: served.handler.in_flight == 0 and all(o.has_terminal for o in operations))
        drops = [what[1]["operation_id"] for kind, what in session.sent if kind == "drop"]
        assert sorted(drops) == [1, 2, 3]
        assert len(served.engine.aborted) == 3


async def test_a_cancel_before_dispatch_reaches_no_engine() -> None:
    limits = ProfileLimits(max_operations_per_session=1)
    async with serving(text_script("a"), limits=limits) as served:
        session = FakeSession()
        for number in (1, 2):  # the second finds the place free
            operation = fake_operation(envelope(), session, operation_id=number)
            served.handler.submitted(operation)
            operation.end(served.handler, EndReason.CANCELLED)
            await until(lambda: served.handler.in_flight == 0)
            await until(lambda operation=operation: operation.has_terminal)  # type: ignore[misc]
            diagnostic = cancelled("user_cancelled", "peer", False, number)
            assert session.sent[-1] == ("drop", (3, diagnostic, False))
        assert served.engine.requests == []


async def test_a_cancel_during_the_hold_reaches_no_engine() -> None:
    async with serving(text_script("a"), limits=ProfileLimits(trace_hold_s=60)) as served:
        operation = fake_operation(envelope())
        served.handler.submitted(operation)
        await asyncio.sleep(0)
        operation.end(served.handler, EndReason.CANCELLED)
        await until(lambda: operation.has_terminal)
        assert served.engine.requests == []


# Races


async def test_a_cancel_after_the_finish_is_late() -> None:
    async with serving(text_script("a")) as served:
        operation = fake_operation(envelope())
        served.handler.submitted(operation)
        await until(lambda: operation.has_terminal)
        operation.end(served.handler, EndReason.CANCELLED)
        await until(lambda: served.handler.in_flight == 0)
        assert [kind for kind, _ in operation.session.sent] == ["push", "finish"]


@pytest.mark.parametrize("stream", [True, False], ids=["waiting in push", "waiting in finish"])
async def test_a_cancel_overtakes_what_waits_for_room(stream: bool) -> None:
    async with serving(text_script("a")) as served:
        operation = fake_operation(envelope({"stream": stream}))
        operation.room.clear()
        served.handler.submitted(operation)
        await until(lambda: operation.waiting)
        operation.end(served.handler, EndReason.CANCELLED)
        await until(lambda: operation.has_terminal and served.handler.in_flight == 0)
        # The engine's stream was still open under the waiting push, and over under the waiting finish.
        diagnostic = cancelled("user_cancelled", "peer", stream)
        assert [kind for kind, _ in operation.session.sent] == ["trace", "drop"]
        assert operation.session.sent[-1] == ("drop", (3, diagnostic, False))
        assert len(served.engine.aborted) == stream


async def test_an_end_seen_first_by_push() -> None:
    """push() raises before the handler is told: the run ends as abandoned, and the drop still comes."""
    async with serving([*text_script("a")[:1], *text_script("b")]) as served:
        operation = fake_operation(envelope())
        operation.room.clear()
        served.handler.submitted(operation)
        await until(lambda: operation.waiting)
        reason, tell = EndReason.CANCELLED, served.handler
        operation.end(_Deaf(), reason)  # type: ignore[arg-type]
        await until(lambda: served.handler.in_flight == 0)
        tell.operation_ended(operation)
        await until(lambda: operation.has_terminal)
        assert [kind for kind, _ in operation.session.sent] == ["trace", "drop"]
        assert len(served.engine.aborted) == 1


class _Deaf:
    def operation_ended(self, operation: FakeOperation) -> None:
        pass


async def test_a_carrier_that_had_the_last_word_gets_no_second() -> None:
    async with serving(held) as served:
        operation = fake_operation(envelope())
        await in_mid_stream(served, operation)
        operation.end(served.handler, EndReason.SESSION_CLOSED)
        operation.has_terminal = True
        await until(lambda: served.handler.in_flight == 0)
    assert [kind for kind, _ in operation.session.sent] == ["push"]


async def test_close_ends_what_is_left_as_a_shutdown() -> None:
    async with serving(held) as served:
        operation = fake_operation(envelope())
        await in_mid_stream(served, operation)
        await served.handler.close()
        assert operation.session.sent[1:] == [("drop", (8, cancelled("shutdown", "server", True), True))]
        assert len(served.engine.aborted) == 1


class SlowToAbort(ScriptedEngine):
    """An engine whose abort takes until `released`."""

    def __init__(self) -> None:
        super().__init__(held)
        self.released = asyncio.Event()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineDelta, None]:
        try:
            async for delta in super().generate(request):
                yield delta
        finally:
            await self.released.wait()


@pytest.mark.parametrize(
    ("reason", "word", "aborted"),
    [(EndReason.ABORTED, "aborted", None), (EndReason.CANCELLED, "user_cancelled", False)],
)
async def test_a_slow_abort_does_not_hold_the_drop(reason: EndReason, word: str, aborted: bool | None) -> None:
    engine, host = SlowToAbort(), EngineHost()

    async def opened() -> ScriptedEngine:
        return engine

    await host.load("key", opened)
    limits = ProfileLimits(abort_wait_s=60 if reason is EndReason.ABORTED else 0.01)
    handler = ProfileHandler(ChatAdapter(host, RequestRunner(host)), limits=limits)
    operation = fake_operation(envelope())
    handler.submitted(operation)
    await until(lambda: operation.session.sent)
    operation.end(handler, reason)
    await until(lambda: operation.has_terminal)
    assert operation.session.sent[-1] == ("drop", (3, cancelled(word, "peer", aborted), False))
    assert handler.in_flight == 1, "the request is still being aborted, and still owned"
    engine.released.set()
    await handler.close()
    await host.close()
    assert handler.in_flight == 0


async def test_random_schedules_have_exactly_one_terminal_and_nothing_after_it() -> None:
    """500 operations, each ended at a random moment for a random reason, some with a peer that has no room."""
    chance = random.Random(20)
    outcomes: set[str] = set()
    async with serving(text_script("a", "b", "c")) as served:
        for _ in range(500):
            operation = fake_operation(envelope({"stream": chance.random() < 0.8}))
            if chance.random() < 0.3:
                operation.room.clear()
            served.handler.submitted(operation)
            for _ in range(chance.randrange(16)):
                await asyncio.sleep(0)
            reason = chance.choice([reason for reason in EndReason if reason is not EndReason.DISCONNECTED])
            operation.end(served.handler, reason)
            await until(lambda: served.handler.in_flight == 0)
            await until(lambda operation=operation: operation.has_terminal)  # type: ignore[misc]
            *before, (last, _) = operation.session.sent
            assert {kind for kind, _ in before} <= {"push", "trace"}
            outcomes.add(last)
        assert served.engine.running == set()
    assert outcomes == {"drop", "finish"}
