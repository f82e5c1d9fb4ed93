# SPDX-License-Identifier: MIT
"""One request of ours as many of the engine's: their order, the first failure, and that none is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from chatdelta import BackendFailure, RequestCancelled
from vllm_engine.in_flight import InFlight, Submit


class Aborts:
    """The part of AsyncLLM that ends requests."""

    def __init__(self) -> None:
        self.errored = False
        self.aborted: list[str] = []

    async def abort(self, request_ids: Iterable[str]) -> None:
        self.aborted.extend(request_ids)


def output(name: str, reason: str = "length") -> Any:
    return SimpleNamespace(name=name, outputs=[SimpleNamespace(finish_reason=reason)])


def pooled(numbers: int) -> Any:
    return SimpleNamespace(outputs=SimpleNamespace(data=SimpleNamespace(numel=lambda: numbers)))


def after(gate: asyncio.Event, *outputs: Any) -> Submit:
    """A request that waits for the gate before it gives its outputs; an exception among them is raised."""

    async def stream(_engine_id: str) -> AsyncGenerator[Any, None]:
        await gate.wait()
        for each in outputs:
            if isinstance(each, Exception):
                raise each
            yield each

    return stream


@pytest.mark.asyncio
async def test_all_run_together_and_the_last_outputs_come_in_order() -> None:
    llm, gate = Aborts(), asyncio.Event()

    async def opening(engine_id: str) -> AsyncGenerator[Any, None]:
        yield output("part")
        gate.set()
        yield output(engine_id)

    found = await InFlight(llm).gather("r", [after(gate, output("waited for the other")), opening])
    assert [each.name for each in found] == ["waited for the other", "r-1"]
    assert not llm.aborted


@pytest.mark.asyncio
async def test_the_first_failure_ends_the_others() -> None:
    llm, never, now = Aborts(), asyncio.Event(), asyncio.Event()
    now.set()
    in_flight = InFlight(llm)
    with pytest.raises(ValueError, match="out of vocabulary"):
        await in_flight.gather("r", [after(never), after(now, ValueError("out of vocabulary"))])
    assert llm.aborted == ["r-0", "r-1"]
    assert not await in_flight.abort("r")


@pytest.mark.asyncio
async def test_a_cancelled_request_leaves_nothing_in_the_engine() -> None:
    llm = Aborts()
    in_flight = InFlight(llm)
    task = asyncio.create_task(in_flight.gather("r", [after(asyncio.Event()), after(asyncio.Event())]))
    await asyncio.sleep(0)  # the task's first step submits all
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert llm.aborted == ["r-0", "r-1"]


@pytest.mark.asyncio
async def test_a_dead_engine_is_not_asked_to_abort() -> None:
    llm, now = Aborts(), asyncio.Event()
    now.set()
    llm.errored = True
    with pytest.raises(RuntimeError):
        await InFlight(llm).gather("r", [after(now, RuntimeError("the core is gone"))])
    assert not llm.aborted


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("last", "error"),
    [
        pytest.param(output("x", "abort"), RequestCancelled, id="an aborted generation"),
        pytest.param(output("x", "error"), BackendFailure, id="a failed one"),
        pytest.param(pooled(0), RequestCancelled, id="an aborted pooling request has no numbers"),
    ],
)
async def test_what_ended_without_a_result_is_an_error(last: Any, error: type[Exception]) -> None:
    now = asyncio.Event()
    now.set()
    with pytest.raises(error):
        await InFlight(Aborts()).gather("r", [after(now, last)])


@pytest.mark.asyncio
async def test_abort_knows_what_runs() -> None:
    llm, gate = Aborts(), asyncio.Event()
    in_flight = InFlight(llm)
    task = asyncio.create_task(in_flight.gather("r", [after(gate, pooled(3))]))
    await asyncio.sleep(0)  # the task's first step submits all
    assert not await in_flight.abort("another")
    assert await in_flight.abort("r")
    assert llm.aborted == ["r-0"]
    gate.set()
    await task
