# SPDX-License-Identifier: MIT
"""The engine's host and the run of one request, on ScriptedEngine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence

import pytest

from chatdelta import (
    BackendFailure,
    Cancelled,
    ChatRequest,
    Completed,
    EngineDead,
    EngineDelta,
    ErrorCode,
    Failed,
    FinishReason,
    InvalidRequest,
    ModelNotLoaded,
    Origin,
    Outcome,
    Overloaded,
    RequestPolicy,
    StreamEvent,
    TextDelta,
    Usage,
    UsageReport,
)
from chatdelta.testing import Gap, Script, ScriptedEngine, Step, Wait, text_script
from chatserving import Answer, EngineHost, HostState, PeerGone, RequestRunner, closing
from tests.support.records import Records
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio


class Bench:
    """A loaded host, a runner and everything one test wants to look at."""

    def __init__(self, script: Script | Iterable[Step], *, max_operations: int = 8, drain_s: float = 0.05) -> None:
        self.engine = ScriptedEngine(script)
        self.host = EngineHost(max_operations=max_operations, drain_s=drain_s)
        self.records = Records()
        self.runner = RequestRunner(self.host, [self.records])
        self.events: list[StreamEvent] = []
        self.usages: list[Usage] = []
        self.batches: list[tuple[int, bool]] = []  # how many events, and whether more were to follow at once

    async def open(self) -> Bench:
        await self.host.load("key", self._engine)
        return self

    async def _engine(self) -> ScriptedEngine:
        return self.engine

    async def emit(self, events: Sequence[StreamEvent], usage: Usage, more_follows: bool) -> None:
        self.events.extend(events)
        self.usages.append(usage)
        self.batches.append((len(events), more_follows))

    async def run(self, request: ChatRequest) -> Answer:
        return await self.runner.run(request, self.emit, operation="chat.completions.create")


def chat(request_id: str = "r1", *, timeout_s: float | None = None, **body: object) -> ChatRequest:
    return ChatRequest(
        request_id,
        {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], **body},
        Origin("nnrp"),
        RequestPolicy(timeout_s=timeout_s),
    )


async def test_a_run_emits_the_stream_and_returns_its_terminal() -> None:
    bench = await Bench(text_script("Hel", "lo")).open()
    answer = await bench.run(chat())
    assert bench.events == [TextDelta(0, "Hel"), TextDelta(0, "lo"), UsageReport(Usage(3, 2))]
    assert bench.usages == [Usage(3, 1), Usage(3, 2), Usage(3, 2)]
    assert isinstance(answer.terminal, Completed)
    assert answer.terminal.body["id"] == "chatcmpl-r1"
    (record,) = bench.records.all
    assert (record.outcome, record.output_events, record.usage) == (Outcome.COMPLETED, 3, Usage(3, 2))
    assert bench.engine.aborted == []


FAILURES: dict[str, tuple[list[Step], ErrorCode]] = {
    "the engine refuses the request": ([InvalidRequest("bad")], ErrorCode.INVALID_REQUEST),
    "the engine fails in the middle": (
        [EngineDelta(content="a", completion_tokens=1), BackendFailure("x")],
        ErrorCode.BACKEND_ERROR,
    ),
    "the engine dies in the middle": (
        [EngineDelta(content="a", completion_tokens=1), EngineDead("x")],
        ErrorCode.ENGINE_DEAD,
    ),
    "something unforeseen": ([KeyError("secret")], ErrorCode.BACKEND_ERROR),
    "no finish reason": ([EngineDelta(content="a", completion_tokens=1)], ErrorCode.BACKEND_ERROR),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_is_a_terminal_and_tells_no_secrets(failure: str) -> None:
    steps, code = FAILURES[failure]
    bench = await Bench(steps).open()
    answer = await bench.run(chat())
    assert isinstance(answer.terminal, Failed)
    assert answer.terminal.error.kind is code
    assert "secret" not in answer.terminal.error.message
    assert bench.records.all[0].outcome is Outcome.FAILED
    assert bench.records.all[0].error_code == answer.terminal.error.code


@pytest.mark.parametrize("n", [0, -1, True, "2", 1.5])
async def test_n_must_be_a_positive_integer(n: object) -> None:
    bench = await Bench(text_script("a")).open()
    answer = await bench.run(chat(n=n))
    assert isinstance(answer.terminal, Failed)
    assert answer.terminal.error.param == "n"


async def test_a_request_over_its_time_is_aborted_and_fails() -> None:
    never = asyncio.Event()
    bench = await Bench([EngineDelta(content="a", completion_tokens=1), Wait(never)]).open()
    answer = await bench.run(chat(timeout_s=0.02))
    assert isinstance(answer.terminal, Failed)
    assert answer.terminal.error.kind is ErrorCode.TIMEOUT
    assert bench.engine.aborted == ["r1"]


async def test_cancelling_the_task_aborts_the_engine_and_is_recorded() -> None:
    bench = await Bench([EngineDelta(content="a", completion_tokens=1), Wait(asyncio.Event())]).open()
    task = asyncio.create_task(bench.run(chat()))
    await until(lambda: bench.events)
    task.cancel("user_cancelled")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.engine.aborted == ["r1"]
    assert bench.engine.running == set()
    (record,) = bench.records.all
    assert (record.outcome, record.cancel_reason) == (Outcome.CANCELLED, "user_cancelled")
    assert bench.host.in_flight == 0


async def test_what_was_said_to_follow_is_told_of_also_where_it_brings_nothing() -> None:
    first = EngineDelta(content="a", completion_tokens=1, more_follows=True)
    silent = EngineDelta(completion_tokens=2)
    last = EngineDelta(completion_tokens=3, finish_reason=FinishReason.STOP)
    bench = await Bench([first, silent, silent, last]).open()
    await bench.run(chat())
    assert bench.batches == [(1, True), (0, False), (1, False)]  # the last is of the usage
    assert bench.usages[1] == Usage(completion_tokens=2)
    assert bench.records.all[0].output_events == 2


async def test_a_peer_that_takes_nothing_more_aborts_the_engine() -> None:
    bench = await Bench(text_script("a", "b")).open()

    async def gone(events: Sequence[StreamEvent], usage: Usage, more_follows: bool) -> None:
        raise PeerGone("disconnected")

    with pytest.raises(PeerGone):
        await bench.runner.run(chat(), gone, operation="chat.completions.create")
    assert bench.engine.aborted == ["r1"]
    assert bench.records.all[0].cancel_reason == "disconnected"


async def test_an_abort_of_the_engine_ends_the_stream_as_cancelled() -> None:
    bench = await Bench([EngineDelta(content="a", completion_tokens=1), Wait(asyncio.Event())]).open()
    task = asyncio.create_task(bench.run(chat()))
    await until(lambda: bench.events)
    assert await bench.engine.abort("r1")
    assert isinstance((await task).terminal, Cancelled)


async def test_nothing_loaded_is_an_answer() -> None:
    bench = Bench(())
    answer = await bench.run(chat())
    assert isinstance(answer.terminal, Failed)
    assert answer.terminal.error.kind is ErrorCode.MODEL_NOT_LOADED


async def test_over_the_limit_is_refused_with_a_time_to_come_back() -> None:
    hold = asyncio.Event()
    bench = await Bench([Wait(hold), *text_script("a")], max_operations=1).open()
    first = asyncio.create_task(bench.run(chat("r1")))
    await until(lambda: bench.engine.running)
    answer = await bench.run(chat("r2"))
    assert isinstance(answer.terminal, Failed)
    assert answer.terminal.error.kind is ErrorCode.OVERLOADED
    assert answer.terminal.error.retry_after_ms
    hold.set()
    assert isinstance((await first).terminal, Completed)


async def test_free_lets_a_short_request_finish_and_stops_the_engine() -> None:
    bench = await Bench([Gap(0.01), *text_script("a")], drain_s=5.0).open()
    task = asyncio.create_task(bench.run(chat()))
    await until(lambda: bench.engine.running)
    await bench.host.free()
    assert isinstance((await task).terminal, Completed)
    assert bench.engine.stopped
    assert bench.host.state is HostState.UNINITIALIZED
    with pytest.raises(ModelNotLoaded):
        bench.host.engine()


async def test_free_ends_what_outlives_the_drain_with_a_terminal() -> None:
    bench = await Bench([Wait(asyncio.Event())]).open()
    task = asyncio.create_task(bench.run(chat()))
    await until(lambda: bench.engine.running)
    await bench.host.free()
    assert isinstance((await task).terminal, Cancelled)
    assert bench.engine.stopped


async def test_a_closed_host_refuses_while_it_drains() -> None:
    hold = asyncio.Event()
    bench = await Bench([Wait(hold), *text_script("a")], drain_s=5.0).open()
    task = asyncio.create_task(bench.run(chat()))
    await until(lambda: bench.engine.running)
    closed = asyncio.create_task(bench.host.close())
    await asyncio.sleep(0)
    answer = await bench.run(chat("r2"))
    assert isinstance(answer.terminal, Failed)
    hold.set()
    assert isinstance((await task).terminal, Completed)
    await closed


async def test_the_same_load_is_done_at_once_and_another_replaces_the_engine() -> None:
    bench = await Bench(text_script("a")).open()
    other = ScriptedEngine(text_script("b"))

    async def open_other() -> ScriptedEngine:
        return other

    await bench.host.load("key", open_other)
    assert bench.host.engine() is bench.engine
    await bench.host.load("other", open_other)
    assert bench.engine.stopped
    assert bench.host.engine() is other
    assert not other.stopped


async def test_a_failed_load_leaves_nothing_and_can_be_tried_again() -> None:
    bench = Bench(text_script("a"))

    async def fail() -> ScriptedEngine:
        assert bench.host.state is HostState.LOADING
        raise BackendFailure("no memory")

    with pytest.raises(BackendFailure, match="no memory"):
        await bench.host.load("key", fail)
    assert bench.host.state.value == "uninitialized"
    assert not bench.host.loaded.is_set()
    await bench.open()
    assert bench.host.state.value == "ready"


async def test_the_engines_death_fails_streams_and_is_final() -> None:
    bench = await Bench([EngineDelta(content="a", completion_tokens=1), Wait(asyncio.Event())]).open()
    task = asyncio.create_task(bench.run(chat()))
    await until(lambda: bench.events)
    bench.engine.kill()
    answer = await task
    assert isinstance(answer.terminal, Failed)
    assert answer.terminal.error.kind is ErrorCode.ENGINE_DEAD
    async with asyncio.timeout(5):
        await bench.host.died.wait()
    assert bench.host.state is HostState.ERROR
    with pytest.raises(EngineDead):
        bench.host.engine()
    with pytest.raises(EngineDead):
        await bench.host.load("key", bench._engine)


async def test_overloaded_is_raised_by_the_host_itself() -> None:
    bench = await Bench((), max_operations=0).open()
    with pytest.raises(Overloaded), bench.host.operation("r"):
        pass


async def test_closing_finishes_even_when_cancelled_inside() -> None:
    closed: list[str] = []
    entered = asyncio.Event()

    async def stream() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            entered.set()
            await asyncio.sleep(0)  # an abort awaits
            await asyncio.sleep(0)
            closed.append("to the end")

    async def use() -> None:
        async with closing(stream()) as items:
            async for _ in items:
                break

    task = asyncio.create_task(use())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == ["to the end"]


async def test_two_choices_are_mapped_apart() -> None:
    script = [
        EngineDelta(0, content="a", prompt_tokens=3, completion_tokens=1),
        EngineDelta(1, content="b", prompt_tokens=3, completion_tokens=1),
        EngineDelta(0, completion_tokens=2, prompt_tokens=3, finish_reason=FinishReason.STOP),
        EngineDelta(1, completion_tokens=2, prompt_tokens=3, finish_reason=FinishReason.LENGTH),
    ]
    bench = await Bench(script).open()
    answer = await bench.run(chat(n=2))
    assert isinstance(answer.terminal, Completed)
    choices = answer.terminal.body["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["a", "b"]
    assert [choice["finish_reason"] for choice in choices] == ["stop", "length"]
