# SPDX-License-Identifier: MIT
"""Score, Detokenize, GetMetrics and ModelMetadata on the real engine: scores are what transformers itself computes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import grpc
import pytest

from chatdelta import Origin, RequestCancelled, ScoreRequest
from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.real_engine.backend import RealBackend
from tests.real_engine.clients import predict_options
from tests.support.waiting import until
from tests.vllm_nnrp.doors import status_of
from vllm_nnrp.models import CONVERSATIONS, build_memorised_model
from vllm_nnrp.models.building import one_thread, quiet_transformers

pytestmark = pytest.mark.asyncio(loop_scope="session")
TOLERANCE = 1e-3

CHAT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = (
    CHAT,
    CHAT * 12,  # several blocks of vLLM's cache
    "The capit",  # "al" joins it: " capital" is one token
    "Größe in Z",
)
CANDIDATES = (
    "The capital of France is Paris.",
    "al",
    "東京 👋🏽",
    "ürich" * 40,  # longer than a block
    "\n<|im_end|>",
)
PAIRS = list(itertools.product(PROMPTS, CANDIDATES))


@cache
def transformers_model() -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = build_memorised_model()
    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
        return model, AutoTokenizer.from_pretrained(folder)


def reference(prompt: str, candidate: str) -> tuple[list[float], bool]:
    """transformers' log-probability of each token of the candidate, and whether its first one holds prompt text."""
    import torch

    model, tokenizer = transformers_model()
    alone, both = tokenizer(prompt).input_ids, tokenizer(prompt + candidate).input_ids
    same = [one == other for one, other in zip(alone, both, strict=False)]
    start = same.index(False) if False in same else len(same)
    with one_thread(), torch.inference_mode():
        logprobs = model(torch.tensor([both])).logits[0].log_softmax(-1)
    return [logprobs[position - 1, both[position]].item() for position in range(start, len(both))], start < len(alone)


async def score(backend: RealBackend, prompt: str, *candidates: str, **options: Any) -> list[pb.CandidateScore]:
    reply = await backend.stub.Score(pb.ScoreRequest(prompt=prompt, candidates=candidates, **options))
    return list(reply.candidates)


@contextmanager
def recorded(backend: RealBackend) -> Iterator[list[Any]]:
    """vLLM's last output of every request it gets meanwhile."""
    llm: Any = backend.host.engine().llm  # type: ignore[attr-defined]  # VllmEngine's
    outputs: list[Any] = []
    generate = llm.generate

    async def recording(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        async for output in generate(*args, **kwargs):
            outputs.append(output)
            yield output

    llm.generate = recording
    try:
        yield outputs
    finally:
        del llm.generate


async def test_scores_are_transformers_own(backend: RealBackend, figure: Figure) -> None:
    worst, joined = 0.0, 0
    for prompt, candidate in PAIRS:
        expected, has_prompt_text = reference(prompt, candidate)
        (row,) = await score(backend, prompt, candidate, include_token_logprobs=True, length_normalize=True)
        assert row.num_tokens == len(row.tokens) == len(expected)
        assert row.log_prob == pytest.approx(sum(expected), abs=TOLERANCE), (prompt, candidate)
        assert [token.log_prob for token in row.tokens] == pytest.approx(expected, abs=TOLERANCE)
        assert row.length_normalized_log_prob == pytest.approx(sum(expected) / len(expected), abs=TOLERANCE)
        worst = max(worst, abs(row.log_prob - sum(expected)))
        joined += has_prompt_text
    assert len(PAIRS) == 20
    assert joined >= 1
    figure(f"Score against transformers, {len(PAIRS)} pairs, {joined} with a joining token: off by {worst:.1e} at most")


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_all_candidates_at_once_and_again_are_the_same(backend: RealBackend, prompt: str) -> None:
    """The second time all but the last block of each is in vLLM's cache, the candidates' tokens too."""
    expected = [sum(reference(prompt, candidate)[0]) for candidate in CANDIDATES]
    for _ in range(2):
        rows = await score(backend, prompt, *CANDIDATES)
        assert [row.log_prob for row in rows] == pytest.approx(expected, abs=TOLERANCE)
        assert all(row.length_normalized_log_prob == 0 and not row.tokens for row in rows)


async def test_wherever_a_cached_block_ends(backend: RealBackend) -> None:
    """One more token in the prompt each time, over more than a block."""
    block: int = backend.host.engine().llm.vllm_config.cache_config.block_size  # type: ignore[attr-defined]
    for length in range(block - 4, block + 5):
        prompt, candidates = "é" * length, ("é" * 3, "a", "é" * 2 + "b")
        for _ in range(2):
            rows = await score(backend, prompt, *candidates)
            for row, candidate in zip(rows, candidates, strict=True):
                assert row.log_prob == pytest.approx(sum(reference(prompt, candidate)[0]), abs=TOLERANCE), length


async def test_the_prompt_is_computed_once(backend: RealBackend) -> None:
    prompt, candidates = "Once upon a time. " * 60, [f"{number} and more" for number in range(8)]
    block: int = backend.host.engine().llm.vllm_config.cache_config.block_size  # type: ignore[attr-defined]
    with recorded(backend) as outputs:
        await score(backend, prompt, *candidates)
    first, *others = outputs
    length = len(first.prompt_token_ids)
    assert length > 2 * block
    assert first.num_cached_tokens == 0
    assert len(others) >= len(candidates)
    assert all(output.num_cached_tokens >= length // block * block for output in others)


async def test_a_likelier_answer_has_the_higher_score(backend: RealBackend) -> None:
    rows = await score(backend, CHAT, "The capital of France is Paris.", "The capital of France is Berlin.")
    assert rows[0].log_prob > rows[1].log_prob + 1


@pytest.mark.parametrize(
    ("prompt", "candidates", "words"),
    [
        ("", ["a"], "candidates[0]: the prompt leaves no token in front of it"),
        ("p", ["a", "b" * 100_000], "This model's maximum context length is 4096 tokens"),
        ("p" * 100_000, ["a"], "This model's maximum context length is 4096 tokens"),
    ],
)
async def test_what_cannot_be_scored_is_named(
    backend: RealBackend, prompt: str, candidates: list[str], words: str
) -> None:
    code, text = await status_of(backend.stub.Score(pb.ScoreRequest(prompt=prompt, candidates=candidates)))
    assert (code, words in text) == (grpc.StatusCode.INVALID_ARGUMENT, True), text
    assert await score(backend, CHAT, "a")


LONG = [f"{number} " + "é" * 2000 for number in range(60)]


async def test_a_caller_that_hangs_up_leaves_nothing_running(backend: RealBackend) -> None:
    call = backend.stub.Score(pb.ScoreRequest(prompt=CHAT, candidates=LONG))
    await until(lambda: backend.counts.waiting, timeout_s=60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await backend.counts.idle()
    assert await score(backend, CHAT, "a")


async def test_an_aborted_request_ends_as_cancelled(backend: RealBackend) -> None:
    engine = backend.host.engine()
    scores = asyncio.ensure_future(engine.score(ScoreRequest("r1", Origin(door="test"), CHAT, tuple(LONG))))
    await until(lambda: backend.counts.waiting, timeout_s=60)
    assert await engine.abort("r1")
    with pytest.raises(RequestCancelled):
        await scores
    await backend.counts.idle()
    assert not await engine.abort("r1")


async def test_tokens_become_text_again(backend: RealBackend) -> None:
    text = "<|im_start|>user\né 東京 👋🏽<|im_end|>"
    tokens = (await backend.stub.TokenizeString(pb.PredictOptions(Prompt=text))).tokens
    assert (await backend.stub.Detokenize(pb.DetokenizeRequest(tokens=tokens))).content == text


@pytest.mark.parametrize("token_id", [-1, 2**31 - 1])
async def test_what_is_no_token_is_named(backend: RealBackend, token_id: int) -> None:
    code, text = await status_of(backend.stub.Detokenize(pb.DetokenizeRequest(tokens=[5, token_id])))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    highest = len(transformers_model()[1]) - 1
    assert text == f"tokens[1] is {token_id}, and the model's tokens are 0 to {highest}"


async def test_metrics_grow_by_what_a_request_took(backend: RealBackend) -> None:
    before = await backend.stub.GetMetrics(pb.MetricsRequest())
    reply = await backend.stub.Predict(predict_options(CONVERSATIONS[0]))
    after = await backend.stub.GetMetrics(pb.MetricsRequest())
    assert after.tokens_generated - before.tokens_generated == reply.tokens > 0
    assert after.prompt_tokens_processed - before.prompt_tokens_processed == reply.prompt_tokens > 0
    assert after.tokens_per_second > 0
    assert after.prompt_json_for_slot == ""


async def test_metadata_is_read_from_the_template(backend: RealBackend) -> None:
    reply = await backend.stub.ModelMetadata(pb.ModelOptions())
    assert reply.supports_thinking
    assert reply.rendered_template == "<|im_start|>user\ntest<|im_end|>\n<|im_start|>assistant\n"
    assert not reply.HasField("tool_format")


async def test_a_model_that_generates_has_no_embeddings(backend: RealBackend) -> None:
    for call in (
        backend.stub.Embedding(pb.PredictOptions(Embeddings="text")),
        backend.stub.Rerank(pb.RerankRequest(query="q", documents=["d"])),
    ):
        code, text = await status_of(call)
        assert (code, text.startswith("the loaded model generates text")) == (grpc.StatusCode.UNIMPLEMENTED, True)


async def test_status_knows_the_memory_of_the_engines_process(backend: RealBackend) -> None:
    status = await backend.stub.Status(pb.HealthMessage())
    assert status.state == pb.StatusResponse.READY
    assert status.memory.total == sum(status.memory.breakdown.values())
    assert all(status.memory.breakdown[part] > 100_000_000 for part in ("backend", "engine"))
