# SPDX-License-Identifier: MIT
"""The run of one task on ScriptedEngine, and the token counts: each ends with exactly one observation."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import replace

import pytest

from chatdelta import (
    Embedding,
    EmbeddingLayout,
    EmbeddingRequest,
    EngineDead,
    InvalidRequest,
    Observation,
    Origin,
    Outcome,
    Overloaded,
    RequestCancelled,
    Task,
    Usage,
)
from chatdelta.testing import SCRIPTED_INFO, ScriptedEngine, TaskStep, Wait
from chatserving import EngineHost, TaskRunner
from chatserving.counts import TokenCounts
from tests.support.records import Records
from tests.support.waiting import until

REQUEST = EmbeddingRequest("r1", Origin(door="test"), "text")
EMBEDDING = Embedding(array("f", [0.5]), 1, EmbeddingLayout.FINAL, prompt_tokens=7)


class Serving:
    """A host with an engine that embeds, a runner, and what it observed."""

    def __init__(self, *steps: TaskStep, max_operations: int = 8) -> None:
        self.engine = ScriptedEngine((), tasks=steps, info=replace(SCRIPTED_INFO, tasks=frozenset({Task.EMBED})))
        self.host = EngineHost(max_operations=max_operations, drain_s=0.1)
        self.records = Records()
        self._times = iter((10.0, 12.5))
        self.runner = TaskRunner(self.host, (self.records,), monotonic=lambda: next(self._times))

    async def embed(self) -> Embedding:
        async def opened() -> ScriptedEngine:
            return self.engine

        await self.host.load("key", opened)
        return await self.runner.run(REQUEST, lambda e: e.embed(REQUEST), operation="embedding", model="m")

    @property
    def observation(self) -> Observation:
        (observation,) = self.records.all
        return observation


@pytest.mark.asyncio
async def test_a_result_is_observed_with_its_usage_and_time() -> None:
    serving = Serving(EMBEDDING)
    assert await serving.embed() is EMBEDDING
    seen = serving.observation
    assert (seen.request_id, seen.operation, seen.model, seen.origin) == ("r1", "embedding", "m", REQUEST.origin)
    assert (seen.outcome, seen.usage, seen.duration_s) == (Outcome.COMPLETED, Usage(prompt_tokens=7), 2.5)
    assert serving.host.in_flight == 0


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (InvalidRequest("too long", code="context_length_exceeded"), Outcome.FAILED, "context_length_exceeded"),
        (EngineDead("dead"), Outcome.FAILED, "engine_dead"),
        (RequestCancelled("aborted"), Outcome.CANCELLED, None),
        (RuntimeError("our own bug"), Outcome.FAILED, "backend_error"),
    ],
)
async def test_an_error_passes_through_observed(error: Exception, outcome: Outcome, code: str | None) -> None:
    serving = Serving(error)
    with pytest.raises(type(error)) as caught:
        await serving.embed()
    assert caught.value is error
    assert (serving.observation.outcome, serving.observation.error_code) == (outcome, code)


@pytest.mark.asyncio
async def test_a_cancelled_task_is_aborted_in_the_engine_and_observed() -> None:
    serving = Serving(Wait(asyncio.Event()), EMBEDDING)
    task = asyncio.create_task(serving.embed())
    await until(lambda: serving.engine.running)
    task.cancel("hung up")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert serving.engine.aborted == ["r1"]
    assert (serving.observation.outcome, serving.observation.cancel_reason) == (Outcome.CANCELLED, "hung up")


@pytest.mark.asyncio
async def test_over_the_limit_it_is_refused_and_observed() -> None:
    serving = Serving(EMBEDDING, max_operations=0)
    with pytest.raises(Overloaded):
        await serving.embed()
    assert serving.observation.error_code == "backend_overload"


def observed(prompt: int, completion: int, seconds: float) -> Observation:
    return Observation(
        request_id="r",
        model="m",
        operation="predict",
        origin=Origin(door="test"),
        outcome=Outcome.COMPLETED,
        duration_s=seconds,
        first_event_s=None,
        last_event_s=None,
        output_events=0,
        usage=Usage(prompt_tokens=prompt, completion_tokens=completion),
        timings=None,
        error_kind=None,
        error_code=None,
        cancel_reason=None,
        parser_failure=None,
        trace=None,
    )


@pytest.mark.parametrize(
    ("finished", "running", "expected"),
    [
        pytest.param([], [], (0, 0, 0.0), id="nothing yet"),
        pytest.param([(10, 20, 4.0), (5, 10, 2.0)], [], (15, 30, 5.0), id="tokens by the seconds they took"),
        pytest.param([(10, 20, 4.0)], [(3, 10, 1.0)], (13, 30, 6.0), id="with what runs"),
        pytest.param([(10, 20, 4.0), (900, 0, 9.0)], [(3, 0, 9.0)], (913, 20, 5.0), id="speed is of answers only"),
        pytest.param([(0, 100, 1.0)] + [(0, 10, 2.0)] * 32, [], (0, 420, 5.0), id="speed is of the last 32"),
    ],
)
def test_tokens_are_counted(
    finished: list[tuple[int, int, float]],
    running: list[tuple[int, int, float]],
    expected: tuple[int, int, float],
) -> None:
    counts = TokenCounts()
    for prompt, completion, seconds in finished:
        counts.record(observed(prompt, completion, seconds))
    found = counts.throughput((Usage(prompt, completion), seconds) for prompt, completion, seconds in running)
    assert (found.prompt_tokens, found.completion_tokens, found.tokens_per_second) == expected
