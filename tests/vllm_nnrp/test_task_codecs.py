# SPDX-License-Identifier: MIT
"""What the fields of the task RPCs mean, and what their replies hold: a row a rule."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from chatdelta import (
    CandidateScore,
    Embedding,
    EmbeddingLayout,
    InvalidRequest,
    PromptTemplate,
    Relevance,
    ScoredToken,
    Scores,
)
from chatserving import Throughput
from localai_proto import backend_pb2 as pb
from vllm_nnrp.grpc_door.decode_tasks import decode_detokenize, decode_embedding, decode_rerank, decode_score
from vllm_nnrp.grpc_door.encode_tasks import (
    encode_embedding,
    encode_metadata,
    encode_metrics,
    encode_rerank,
    encode_score,
)
from vllm_nnrp.grpc_door.server import MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"Embeddings": "text"}, "text", id="a text"),
        pytest.param({"EmbeddingTokens": [0, 5, 7]}, (0, 5, 7), id="token ids"),
        pytest.param({"Embeddings": "text", "EmbeddingTokens": [5]}, "text", id="both: the text"),
        pytest.param({"Embeddings": "text", "Temperature": 9, "Tools": "{"}, "text", id="generation fields: ignored"),
    ],
)
def test_what_is_embedded(options: dict[str, Any], expected: object) -> None:
    request = decode_embedding(pb.PredictOptions(**options), "r1")
    assert (request.input, request.request_id, request.origin.door) == (expected, "r1", "grpc")


def test_a_rerank_and_a_score_request_as_they_are() -> None:
    rerank = decode_rerank(pb.RerankRequest(query="q", documents=["a", "b"]), "r1")
    assert (rerank.query, rerank.documents) == ("q", ("a", "b"))
    score = decode_score(pb.ScoreRequest(prompt="p", candidates=["a", "b"], stable_prefix_len=-7), "r1")
    assert (score.prompt, score.candidates) == ("p", ("a", "b"))
    assert decode_score(pb.ScoreRequest(candidates=["a"]), "r1").prompt == ""
    assert decode_detokenize(pb.DetokenizeRequest(tokens=[3, 1])) == (3, 1)
    assert decode_detokenize(pb.DetokenizeRequest()) == ()


@pytest.mark.parametrize(
    ("decode", "request_", "param", "words"),
    [
        (decode_embedding, pb.PredictOptions(Prompt="x"), "Embeddings", "and EmbeddingTokens are both empty"),
        (decode_embedding, pb.PredictOptions(EmbeddingTokens=[1, -2]), "EmbeddingTokens[1]", "not negative"),
        (decode_rerank, pb.RerankRequest(documents=["a"]), "query", "is empty"),
        (decode_rerank, pb.RerankRequest(query="q"), "documents", "is empty"),
        (decode_rerank, pb.RerankRequest(query="q", documents=["a", ""]), "documents[1]", "is empty"),
        (decode_rerank, pb.RerankRequest(query="q", documents=["a"], top_n=-1), "top_n", "must be 0"),
        (decode_rerank, pb.RerankRequest(query="q", documents=["a"] * 1025), "documents", "at most 1024"),
        (decode_score, pb.ScoreRequest(prompt="p"), "candidates", "is empty"),
        (decode_score, pb.ScoreRequest(prompt="p", candidates=["a", ""]), "candidates[1]", "is empty"),
        (decode_score, pb.ScoreRequest(prompt="p", candidates=["a"] * 1025), "candidates", "at most 1024"),
    ],
)
def test_what_is_refused_is_named(decode: Any, request_: object, param: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(request_, "r1")
    assert (caught.value.param, caught.value.code) == (param, "invalid_body")
    assert str(caught.value).startswith(param)
    assert words in str(caught.value)


def test_no_million_tokens_are_made_text_of() -> None:
    with pytest.raises(InvalidRequest, match="tokens has 1000001 entries"):
        decode_detokenize(pb.DetokenizeRequest(tokens=[1] * 1_000_001))


@pytest.mark.parametrize(
    ("layout", "values", "expected"),
    [
        pytest.param(EmbeddingLayout.FINAL, [0.5, -2.0, 0.25], (1, 3, pb.EMBEDDING_LAYOUT_FINAL), id="one vector"),
        pytest.param(
            EmbeddingLayout.PER_TOKEN, [1.0, 2.0, 3.0] * 2, (2, 3, pb.EMBEDDING_LAYOUT_PER_TOKEN), id="one a token"
        ),
        pytest.param(
            EmbeddingLayout.PER_TOKEN, [1.0, 2.0, 3.0], (1, 3, pb.EMBEDDING_LAYOUT_PER_TOKEN), id="of a single token"
        ),
    ],
)
def test_an_embedding_says_its_shape(
    layout: EmbeddingLayout, values: list[float], expected: tuple[int, int, int]
) -> None:
    reply = encode_embedding(Embedding(array("f", values), 3, layout, prompt_tokens=9))
    assert (reply.tokens, reply.dim, reply.layout) == expected
    assert (list(reply.embeddings), reply.prompt_tokens) == (values, 9)


def test_more_vectors_than_a_message_holds_are_too_long() -> None:
    count = MAX_MESSAGE_BYTES // 4 + 1
    with pytest.raises(InvalidRequest) as caught:
        encode_embedding(Embedding(array("f", bytes(4 * count)), 1, EmbeddingLayout.PER_TOKEN, prompt_tokens=count))
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("top_n", "indices"),
    [
        pytest.param(0, [2, 1, 3, 0], id="0: all, the most relevant first, equals as they came"),
        pytest.param(2, [2, 1], id="the first two"),
        pytest.param(9, [2, 1, 3, 0], id="more than there are: all"),
    ],
)
def test_documents_come_by_relevance(top_n: int, indices: list[int]) -> None:
    request = pb.RerankRequest(query="q", documents=["d0", "d1", "d2", "d3"], top_n=top_n)
    reply = encode_rerank(request, Relevance((-1.5, 0.5, 0.75, 0.5), prompt_tokens=12))
    assert [result.index for result in reply.results] == indices
    assert [result.text for result in reply.results] == [f"d{index}" for index in indices]
    assert [result.relevance_score for result in reply.results][:2] == [0.75, 0.5]
    assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (12, 12)


@pytest.mark.parametrize(
    ("options", "normalised", "tokens"),
    [
        pytest.param({}, 0.0, [], id="neither asked for"),
        pytest.param({"length_normalize": True}, -1.5, [], id="by length"),
        pytest.param({"include_token_logprobs": True}, 0.0, [("a", -1.0), ("?", -2.0)], id="each token"),
    ],
)
def test_a_score_holds_what_was_asked_for(
    options: dict[str, Any], normalised: float, tokens: list[tuple[str, float]]
) -> None:
    scores = Scores((CandidateScore((ScoredToken("a", -1.0), ScoredToken("\ud800", -2.0))),), prompt_tokens=3)
    (row,) = encode_score(pb.ScoreRequest(**options), scores).candidates
    assert (row.log_prob, row.num_tokens, row.length_normalized_log_prob) == (-3.0, 2, normalised)
    assert [(token.token, token.log_prob) for token in row.tokens] == tokens


def test_metrics_have_no_prompt_and_fit_the_wire() -> None:
    reply = encode_metrics(Throughput(prompt_tokens=2**40, completion_tokens=7, tokens_per_second=12.5))
    assert (reply.tokens_per_second, reply.tokens_generated, reply.prompt_tokens_processed) == (12.5, 7, 2**31 - 1)
    assert (reply.slot_id, reply.prompt_json_for_slot) == (0, "")


def test_metadata_leaves_calls_and_media_to_us() -> None:
    reply = encode_metadata(PromptTemplate("<|user|>test<think>", supports_thinking=True))
    assert (reply.supports_thinking, reply.rendered_template) == (True, "<|user|>test<think>")
    assert not reply.HasField("tool_format")
    assert reply.media_marker == ""
