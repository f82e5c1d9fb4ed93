# SPDX-License-Identifier: MIT
"""The replies of Embedding, Rerank, Score, GetMetrics and ModelMetadata."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from chatdelta import CandidateScore, Embedding, EmbeddingLayout, InvalidRequest, PromptTemplate, Relevance, Scores
from chatserving import Throughput
from localai_proto import backend_pb2 as pb
from vllm_nnrp.grpc_door.encode import valid_text
from vllm_nnrp.grpc_door.server import MAX_MESSAGE_BYTES

FLOAT_BYTES = 4
MAX_INT32 = 2**31 - 1
# Core passes FINAL on as it is, and pools PER_TOKEN itself where the model's configuration says how.
LAYOUTS: Mapping[EmbeddingLayout, pb.EmbeddingLayout] = MappingProxyType(
    {
        EmbeddingLayout.FINAL: pb.EMBEDDING_LAYOUT_FINAL,
        EmbeddingLayout.PER_TOKEN: pb.EMBEDDING_LAYOUT_PER_TOKEN,
    }
)


def encode_embedding(embedding: Embedding) -> pb.EmbeddingResult:
    """`tokens` is the number of vectors. Raises InvalidRequest for more than a message may hold."""
    if len(embedding.values) * FLOAT_BYTES > MAX_MESSAGE_BYTES:
        raise InvalidRequest(
            f"{embedding.vectors} vectors of {embedding.dimensions} numbers are more than a message may hold",
            code="context_length_exceeded",
        )
    return pb.EmbeddingResult(
        embeddings=embedding.values,
        tokens=embedding.vectors,
        dim=embedding.dimensions,
        prompt_tokens=embedding.prompt_tokens,
        layout=LAYOUTS[embedding.layout],
    )


def encode_rerank(request: pb.RerankRequest, relevance: Relevance) -> pb.RerankResult:
    """The most relevant first, equals in the order of the request; `top_n` of them, or all."""
    ranked = sorted(enumerate(relevance.scores), key=lambda entry: -entry[1])
    return pb.RerankResult(
        usage=pb.Usage(total_tokens=relevance.prompt_tokens, prompt_tokens=relevance.prompt_tokens),
        results=[
            pb.DocumentResult(index=index, text=request.documents[index], relevance_score=score)
            for index, score in ranked[: request.top_n or None]
        ],
    )


def encode_score(request: pb.ScoreRequest, scores: Scores) -> pb.ScoreResponse:
    """One row a candidate, in the order of the request."""
    return pb.ScoreResponse(candidates=[_candidate(request, candidate) for candidate in scores.candidates])


def _candidate(request: pb.ScoreRequest, candidate: CandidateScore) -> pb.CandidateScore:
    row = pb.CandidateScore(log_prob=candidate.log_prob, num_tokens=len(candidate.tokens))
    if request.length_normalize:
        row.length_normalized_log_prob = candidate.log_prob / len(candidate.tokens)
    if request.include_token_logprobs:
        row.tokens.extend(pb.TokenLogProb(token=valid_text(t.text), log_prob=t.logprob) for t in candidate.tokens)
    return row


def encode_metrics(throughput: Throughput) -> pb.MetricsResponse:
    """No prompt is ever shown, and vLLM has no slots: the figures are of all requests."""
    return pb.MetricsResponse(
        tokens_per_second=throughput.tokens_per_second,
        tokens_generated=min(throughput.completion_tokens, MAX_INT32),
        prompt_tokens_processed=min(throughput.prompt_tokens, MAX_INT32),
    )


def encode_metadata(template: PromptTemplate) -> pb.ModelMetadataResponse:
    """No tool format: calls are read here, by the model's own parser. No media marker: the renderer places media."""
    return pb.ModelMetadataResponse(
        supports_thinking=template.supports_thinking, rendered_template=valid_text(template.rendered)
    )
