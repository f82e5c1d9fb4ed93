# SPDX-License-Identifier: MIT
"""Embedding and Rerank on real engines with tiny models: the numbers are what transformers computes itself."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from chatdelta import EmbeddingLayout, EmbeddingRequest, Origin, RequestCancelled, RerankRequest
from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.real_engine.backend import RealBackend, real_backend
from tests.support.waiting import until
from tests.vllm_nnrp.doors import chat, status_of
from vllm_nnrp.models import build_embedding_model, build_reranking_model
from vllm_nnrp.models.building import one_thread, quiet_transformers

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # vLLM's cross-encoder processor loads the model's class in this process, and torch's compiler with it.
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]
TEXTS = ("Paris is a town.", "x", "東京 👋🏽", "long " * 90)
QUERY, DOCUMENTS = "Which town?", ("Paris is a town.", "Water boils.", "東京", "no")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedder() -> AsyncIterator[RealBackend]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    async with real_backend(build_embedding_model(), tool_parser=None, reasoning_parser=None, runner="pooling") as it:
        yield it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reranker() -> AsyncIterator[RealBackend]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    async with real_backend(build_reranking_model(), tool_parser=None, reasoning_parser=None, runner="pooling") as it:
        yield it


def transformers_of(auto_class: Any, folder: Path) -> tuple[Any, Any]:
    from transformers import AutoTokenizer

    with quiet_transformers():
        return auto_class.from_pretrained(folder, dtype="float32").eval(), AutoTokenizer.from_pretrained(folder)


def token_vectors(text: str) -> list[list[float]]:
    """transformers' last hidden states, one a token."""
    import torch
    from transformers import AutoModel

    model, tokenizer = transformers_of(AutoModel, build_embedding_model())
    with one_thread(), torch.inference_mode():
        vectors: list[list[float]] = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].tolist()
    return vectors


def relevance(query: str, document: str) -> float:
    """transformers' score of a pair, as a probability."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model, tokenizer = transformers_of(AutoModelForSequenceClassification, build_reranking_model())
    with one_thread(), torch.inference_mode():
        logit = model(**tokenizer(query, document, return_tensors="pt")).logits.item()
    return 1 / (1 + math.exp(-logit))


def cosine(first: Any, second: Any) -> float:
    product: float = sum(one * other for one, other in zip(first, second, strict=True))
    return product / math.hypot(*first) / math.hypot(*second)


@pytest.mark.parametrize("text", TEXTS)
async def test_an_embedding_is_the_last_tokens_vector(embedder: RealBackend, text: str, figure: Figure) -> None:
    reply = await embedder.stub.Embedding(pb.PredictOptions(Embeddings=text))
    expected = token_vectors(text)
    similarity = cosine(reply.embeddings, expected[-1])
    assert similarity > 0.999
    assert (reply.tokens, reply.dim, reply.layout) == (1, 64, pb.EMBEDDING_LAYOUT_FINAL)
    assert reply.prompt_tokens == len(expected)
    assert math.hypot(*reply.embeddings) == pytest.approx(1.0, abs=1e-5)
    figure(f"Embedding against transformers, {len(expected)} tokens: cosine {similarity:.7f}")


async def test_token_ids_are_the_same_text(embedder: RealBackend) -> None:
    tokens = (await embedder.stub.TokenizeString(pb.PredictOptions(Prompt=TEXTS[0]))).tokens
    by_ids = await embedder.stub.Embedding(pb.PredictOptions(EmbeddingTokens=tokens))
    by_text = await embedder.stub.Embedding(pb.PredictOptions(Embeddings=TEXTS[0]))
    assert list(by_ids.embeddings) == pytest.approx(list(by_text.embeddings), abs=1e-6)
    assert by_ids.prompt_tokens == len(tokens)


async def test_one_vector_a_token_where_the_model_is_set_up_for_it(
    embedder: RealBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second engine object on the same vLLM, told `pooler_config: {"task": "token_embed"}`."""
    from vllm_engine.adapters import Adapters
    from vllm_engine.engine import VllmEngine
    from vllm_engine.spec import EngineSpec

    engine: Any = embedder.host.engine()
    monkeypatch.setattr(engine.llm.model_config.pooler_config, "task", "token_embed")
    supported = await engine.llm.get_supported_tasks()
    second = VllmEngine(engine._runtime, engine.info, supported, adapters=Adapters(EngineSpec("m")))
    embedding = await second.embed(EmbeddingRequest("r1", Origin(door="test"), TEXTS[0]))
    expected = token_vectors(TEXTS[0])
    assert (embedding.layout, embedding.dimensions) == (EmbeddingLayout.PER_TOKEN, 64)
    assert embedding.vectors == embedding.prompt_tokens == len(expected) > 1
    for number, vector in enumerate(expected):
        found = embedding.values[number * 64 : (number + 1) * 64]
        assert list(found) == pytest.approx(vector, rel=1e-3, abs=1e-3)


async def test_an_embedding_model_ranks_by_likeness(embedder: RealBackend) -> None:
    reply = await embedder.stub.Rerank(pb.RerankRequest(query=QUERY, documents=DOCUMENTS))
    query = token_vectors(QUERY)[-1]
    expected = [cosine(query, token_vectors(document)[-1]) for document in DOCUMENTS]
    assert [result.relevance_score for result in reply.results] == pytest.approx(
        sorted(expected, reverse=True), abs=1e-4
    )
    assert reply.usage.total_tokens == len(QUERY.encode()) + sum(len(document.encode()) for document in DOCUMENTS)


async def test_a_cross_encoder_ranks_by_its_own_score(reranker: RealBackend, figure: Figure) -> None:
    reply = await reranker.stub.Rerank(pb.RerankRequest(query=QUERY, documents=DOCUMENTS))
    expected = {number: relevance(QUERY, document) for number, document in enumerate(DOCUMENTS)}
    assert [result.index for result in reply.results] == sorted(expected, key=lambda number: -expected[number])
    worst = max(abs(result.relevance_score - expected[result.index]) for result in reply.results)
    assert worst < 1e-4
    assert [result.text for result in reply.results] == [DOCUMENTS[result.index] for result in reply.results]
    pairs = sum(len(QUERY.encode()) + len(document.encode()) + 3 for document in DOCUMENTS)
    assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (pairs, pairs)
    figure(f"Rerank against transformers, {len(DOCUMENTS)} documents: off by {worst:.1e} at most")


async def test_only_the_best_are_sent_where_asked(reranker: RealBackend) -> None:
    every = await reranker.stub.Rerank(pb.RerankRequest(query=QUERY, documents=DOCUMENTS))
    best = await reranker.stub.Rerank(pb.RerankRequest(query=QUERY, documents=DOCUMENTS, top_n=2))
    assert [result.index for result in best.results] == [result.index for result in every.results][:2]
    # Another batch, other kernels: the last bits of a score are not the same.
    scores = [result.relevance_score for result in every.results]
    assert [result.relevance_score for result in best.results] == pytest.approx(scores[:2], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"Embeddings": "é" * 300}, "RESOURCE_EXHAUSTED", "maximum context length is 512 tokens"),
        ({"Embeddings": "x" * 1_000_000}, "RESOURCE_EXHAUSTED", "maximum context length is 512 tokens"),
        ({"EmbeddingTokens": [5] * 513}, "RESOURCE_EXHAUSTED", "maximum context length is 512 tokens"),
        ({"EmbeddingTokens": [5, 260]}, "INVALID_ARGUMENT", "260 is out of vocabulary"),
        ({"EmbeddingTokens": [5, -1]}, "INVALID_ARGUMENT", "EmbeddingTokens[1] is -1"),
        ({}, "INVALID_ARGUMENT", "Embeddings and EmbeddingTokens are both empty"),
    ],
)
async def test_what_cannot_be_embedded_is_told(
    embedder: RealBackend, options: dict[str, Any], code: str, words: str
) -> None:
    status, text = await status_of(embedder.stub.Embedding(pb.PredictOptions(**options)))
    assert (status.name, words in text) == (code, True), text
    assert (await embedder.stub.Embedding(pb.PredictOptions(Embeddings="a"))).dim == 64


@pytest.mark.parametrize(
    ("query", "documents", "words"),
    [
        ("q" * 500, ["d", "e" * 20], "maximum context length is 512 tokens"),
        ("q" * 1_000_000, ["d"], "query has 1000000 characters"),
        ("q", ["d", "e" * 1_000_000], "documents[1] has 1000000 characters"),
    ],
)
async def test_what_is_too_long_to_rank_is_told(
    reranker: RealBackend, query: str, documents: list[str], words: str
) -> None:
    status, text = await status_of(reranker.stub.Rerank(pb.RerankRequest(query=query, documents=documents)))
    assert (status, words in text) == (grpc.StatusCode.INVALID_ARGUMENT, True), text
    assert len((await reranker.stub.Rerank(pb.RerankRequest(query="q", documents=["d"]))).results) == 1


async def test_a_caller_that_hangs_up_leaves_nothing_running(reranker: RealBackend) -> None:
    call = reranker.stub.Rerank(pb.RerankRequest(query="q" * 200, documents=["d" * 300] * 1000))
    await until(lambda: reranker.counts.waiting, timeout_s=60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await reranker.counts.idle()


async def test_an_aborted_request_ends_as_cancelled(reranker: RealBackend) -> None:
    engine = reranker.host.engine()
    request = RerankRequest("r1", Origin(door="test"), "q" * 200, ("d" * 300,) * 1000)
    ranking = asyncio.ensure_future(engine.rerank(request))
    await until(lambda: reranker.counts.waiting, timeout_s=60)
    assert await engine.abort("r1")
    with pytest.raises(RequestCancelled):
        await ranking
    await reranker.counts.idle()


async def test_a_model_without_a_chat_template_has_no_rendered_one(reranker: RealBackend) -> None:
    reply = await reranker.stub.ModelMetadata(pb.ModelOptions())
    assert (reply.supports_thinking, reply.rendered_template) == (False, "")


async def test_neither_generates(embedder: RealBackend, reranker: RealBackend) -> None:
    for backend, words in ((embedder, "makes embeddings and ranks documents"), (reranker, "ranks documents")):
        score = backend.stub.Score(pb.ScoreRequest(prompt="p", candidates=["c"]))
        for call in (backend.stub.Predict(chat()), backend.stub.PredictStream(chat()), score):
            status, text = await status_of(call)
            assert (status, words in text) == (grpc.StatusCode.UNIMPLEMENTED, True), text
    status, text = await status_of(reranker.stub.Embedding(pb.PredictOptions(Embeddings="x")))
    assert (status, "this needs one that makes embeddings" in text) == (grpc.StatusCode.UNIMPLEMENTED, True)
