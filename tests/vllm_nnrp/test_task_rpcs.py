# SPDX-License-Identifier: MIT
"""Embedding, Rerank, Score, Detokenize, GetMetrics and ModelMetadata over a real grpc.aio server."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import replace
from typing import Any

import grpc
import pytest

from chatdelta import (
    BackendFailure,
    CandidateScore,
    Embedding,
    EmbeddingLayout,
    EngineDelta,
    FinishReason,
    InvalidRequest,
    Outcome,
    PromptTemplate,
    Relevance,
    ScoredToken,
    Scores,
    Task,
)
from chatdelta.testing import SCRIPTED_INFO, TaskStep, Wait
from localai_proto import backend_pb2 as pb
from tests.support.waiting import until
from tests.vllm_nnrp.doors import IDENTITY, chat, open_door, status_of

ALL_TASKS = replace(SCRIPTED_INFO, tasks=frozenset(Task))
RESULTS: tuple[TaskStep, ...] = (
    Embedding(array("f", [0.5, -0.25]), 2, EmbeddingLayout.FINAL, prompt_tokens=4),
    Relevance((0.25, 0.75), prompt_tokens=11),
    Scores((CandidateScore((ScoredToken("y", -0.5),)), CandidateScore((ScoredToken("n", -1.5),))), prompt_tokens=5),
)
EMBEDDING = pb.PredictOptions(Embeddings="text")
RERANK = pb.RerankRequest(query="q", documents=["a", "b"])
SCORE = pb.ScoreRequest(prompt="p", candidates=["y", "n"], length_normalize=True)
TASKS: list[tuple[str, Any]] = [("Embedding", EMBEDDING), ("Rerank", RERANK), ("Score", SCORE)]
OTHERS: list[tuple[str, Any]] = [
    ("Detokenize", pb.DetokenizeRequest(tokens=[104, 105])),
    ("GetMetrics", pb.MetricsRequest()),
    ("ModelMetadata", pb.ModelOptions()),
]


def naming(request: Any, identity: str) -> Any:
    """The request with a ModelIdentity."""
    named = type(request)()
    named.CopyFrom(request)
    named.ModelIdentity = identity
    return named


REFUSED: list[tuple[str, str, Any]] = [
    ("Predict", "predict", chat(ModelIdentity="org/other")),
    ("PredictStream", "predict_stream", chat(LogitBias="no JSON")),
    ("Embedding", "embedding", pb.PredictOptions()),
    ("Rerank", "rerank", naming(RERANK, "org/other")),
    ("Score", "score", pb.ScoreRequest(prompt="p")),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("rpc", "operation", "request_"), REFUSED, ids=[row[0] for row in REFUSED])
async def test_a_request_that_is_refused_before_it_runs_is_observed(rpc: str, operation: str, request_: Any) -> None:
    async with open_door(info=ALL_TASKS) as door:
        await status_of(getattr(door.stub, rpc)(request_))
        (record,) = door.observations
        assert (record.operation, record.outcome, record.origin.door) == (operation, Outcome.FAILED, "grpc")


@pytest.mark.asyncio
async def test_each_task_is_answered_and_observed() -> None:
    async with open_door(tasks=RESULTS, info=ALL_TASKS) as door:
        embedding = await door.stub.Embedding(EMBEDDING)
        assert list(embedding.embeddings) == [0.5, -0.25]
        assert (embedding.tokens, embedding.dim, embedding.prompt_tokens) == (1, 2, 4)
        assert embedding.layout == pb.EMBEDDING_LAYOUT_FINAL
        rerank = await door.stub.Rerank(RERANK)
        assert [(result.index, result.text) for result in rerank.results] == [(1, "b"), (0, "a")]
        score = await door.stub.Score(SCORE)
        assert [row.length_normalized_log_prob for row in score.candidates] == [-0.5, -1.5]
        seen = [(o.operation, o.model, o.outcome, o.usage.prompt_tokens) for o in door.observations]
        assert seen == [
            (name, "scripted", Outcome.COMPLETED, n) for name, n in (("embedding", 4), ("rerank", 11), ("score", 5))
        ]
        assert not door.engine.aborted


@pytest.mark.asyncio
async def test_tokens_become_the_text_they_came_from() -> None:
    async with open_door() as door:
        tokens = (await door.stub.TokenizeString(pb.PredictOptions(Prompt="hi é"))).tokens
        assert (await door.stub.Detokenize(pb.DetokenizeRequest(tokens=tokens))).content == "hi é"


@pytest.mark.asyncio
async def test_metrics_count_what_is_finished_and_what_runs() -> None:
    last = EngineDelta(prompt_tokens=3, completion_tokens=2, finish_reason=FinishReason.STOP)
    held = asyncio.Event()
    script = (EngineDelta(content="a", prompt_tokens=3, completion_tokens=1), Wait(held), last)
    async with open_door(script, tasks=RESULTS, info=ALL_TASKS) as door:
        empty = await door.stub.GetMetrics(pb.MetricsRequest())
        assert (empty.tokens_generated, empty.prompt_tokens_processed, empty.tokens_per_second) == (0, 0, 0)
        await door.stub.Embedding(EMBEDDING)
        stream = aiter(door.stub.PredictStream(chat()))
        await anext(stream)
        running = await door.stub.GetMetrics(pb.MetricsRequest())
        assert (running.tokens_generated, running.prompt_tokens_processed) == (1, 4 + 3)
        assert running.tokens_per_second > 0
        held.set()
        assert [reply async for reply in stream]
        finished = await door.stub.GetMetrics(pb.MetricsRequest())
        assert (finished.tokens_generated, finished.prompt_tokens_processed) == (2, 4 + 3)
        assert finished.prompt_json_for_slot == ""


@pytest.mark.asyncio
async def test_metadata_is_the_models_template() -> None:
    async with open_door(template=PromptTemplate("<user>test", supports_thinking=True)) as door:
        reply = await door.stub.ModelMetadata(pb.ModelOptions(Model="another"))
        assert (reply.supports_thinking, reply.rendered_template) == (True, "<user>test")


@pytest.mark.asyncio
@pytest.mark.parametrize(("rpc", "request_"), [*TASKS, *OTHERS])
async def test_without_a_model_each_is_refused_in_the_words_core_reloads_on(rpc: str, request_: Any) -> None:
    async with open_door(is_loaded=False) as door:
        code, text = await status_of(getattr(door.stub, rpc)(request_))
        assert (code, "model not loaded" in text) == (grpc.StatusCode.FAILED_PRECONDITION, True)


@pytest.mark.asyncio
@pytest.mark.parametrize(("rpc", "request_"), TASKS)
async def test_a_task_for_another_model_is_refused_in_cores_words(rpc: str, request_: Any) -> None:
    async with open_door(tasks=RESULTS, info=ALL_TASKS) as door:
        code, text = await status_of(getattr(door.stub, rpc)(naming(request_, "org/other")))
        assert (code, "model identity mismatch" in text) == (grpc.StatusCode.NOT_FOUND, True)
        assert not door.engine.task_requests
        for identity in ("", IDENTITY):
            await getattr(door.stub, rpc)(naming(request_, identity))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("rpc", "request_", "served", "text"),
    [
        ("Embedding", EMBEDDING, {Task.GENERATE}, "generates text; this needs one that makes embeddings"),
        ("Rerank", RERANK, {Task.GENERATE}, "generates text; this needs one that ranks documents"),
        ("Score", SCORE, {Task.EMBED, Task.RERANK}, "makes embeddings and ranks documents; this needs one that"),
        ("Predict", chat(), {Task.EMBED}, "makes embeddings; this needs one that generates text"),
        ("PredictStream", chat(), {Task.RERANK}, "ranks documents; this needs one that generates text"),
    ],
)
async def test_a_model_for_something_else_says_what_it_is_for(
    rpc: str, request_: Any, served: set[Task], text: str
) -> None:
    info = replace(SCRIPTED_INFO, tasks=frozenset(served))
    async with open_door((EngineDelta(content="a"),), tasks=RESULTS, info=info) as door:
        code, given = await status_of(getattr(door.stub, rpc)(request_))
        assert (code, text in given) == (grpc.StatusCode.UNIMPLEMENTED, True), given


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("rpc", "request_", "words"),
    [
        ("Embedding", pb.PredictOptions(), "Embeddings and EmbeddingTokens are both empty"),
        ("Rerank", pb.RerankRequest(query="q", documents=["a", ""]), "documents[1] is empty"),
        ("Score", pb.ScoreRequest(prompt="p", candidates=["a", ""]), "candidates[1] is empty"),
    ],
)
async def test_wrong_input_is_named(rpc: str, request_: Any, words: str) -> None:
    async with open_door(tasks=RESULTS, info=ALL_TASKS) as door:
        code, text = await status_of(getattr(door.stub, rpc)(request_))
        assert (code, words in text) == (grpc.StatusCode.INVALID_ARGUMENT, True), text
        assert not door.engine.task_requests


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("rpc", "request_", "code"),
    [
        pytest.param("Embedding", EMBEDDING, grpc.StatusCode.RESOURCE_EXHAUSTED, id="core tells the user by this"),
        pytest.param("Rerank", RERANK, grpc.StatusCode.INVALID_ARGUMENT, id="rerank"),
        pytest.param("Score", SCORE, grpc.StatusCode.INVALID_ARGUMENT, id="score"),
    ],
)
async def test_too_long_a_text(rpc: str, request_: Any, code: grpc.StatusCode) -> None:
    error = InvalidRequest("the text is too long", code="context_length_exceeded")
    async with open_door(tasks=[error], info=ALL_TASKS) as door:
        assert await status_of(getattr(door.stub, rpc)(request_)) == (code, "the text is too long")


@pytest.mark.asyncio
@pytest.mark.parametrize(("rpc", "request_"), TASKS)
async def test_a_failure_of_the_engine_is_told_and_observed(rpc: str, request_: Any) -> None:
    async with open_door(tasks=[BackendFailure("it failed")], info=ALL_TASKS) as door:
        assert await status_of(getattr(door.stub, rpc)(request_)) == (grpc.StatusCode.INTERNAL, "it failed")
        assert [(o.outcome, o.error_code) for o in door.observations] == [(Outcome.FAILED, "backend_error")]


@pytest.mark.asyncio
@pytest.mark.parametrize(("rpc", "request_"), TASKS)
async def test_a_caller_that_hangs_up_ends_the_work(rpc: str, request_: Any) -> None:
    async with open_door(tasks=[Wait(asyncio.Event()), *RESULTS], info=ALL_TASKS) as door:
        call = getattr(door.stub, rpc)(request_)
        await until(lambda: door.engine.running)
        assert (await door.stub.Status(pb.HealthMessage())).state == pb.StatusResponse.BUSY
        call.cancel()
        await door.idle()
        await until(lambda: door.observations)
        assert len(door.engine.aborted) == 1
        assert door.observations[0].outcome is Outcome.CANCELLED


@pytest.mark.asyncio
@pytest.mark.parametrize(("rpc", "request_"), TASKS)
async def test_a_model_taken_down_ends_the_work_with_a_status(rpc: str, request_: Any) -> None:
    async with open_door(tasks=[Wait(asyncio.Event()), *RESULTS], info=ALL_TASKS) as door:
        ended = asyncio.ensure_future(status_of(getattr(door.stub, rpc)(request_)))
        await until(lambda: door.engine.running)
        await door.stub.Free(pb.HealthMessage())
        assert (await ended)[0] is grpc.StatusCode.CANCELLED
