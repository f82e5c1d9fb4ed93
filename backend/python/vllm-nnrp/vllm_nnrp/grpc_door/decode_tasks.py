# SPDX-License-Identifier: MIT
"""The requests of Embedding, Rerank, Score and Detokenize. What each zero and each empty field means:

| field                              | zero or empty means                                                           |
|------------------------------------|-------------------------------------------------------------------------------|
| PredictOptions.Embeddings          | use EmbeddingTokens; both empty is an error                                   |
| RerankRequest.query, documents     | an error, also for a single empty document                                    |
| RerankRequest.top_n                | all documents                                                                 |
| ScoreRequest.prompt                | an empty prompt, which suits a model that has a BOS token only                |
| ScoreRequest.candidates            | an error, also for a single empty candidate: it would be the likeliest of all |
| ScoreRequest.stable_prefix_len     | unknown; no number has a meaning here, vLLM finds what it has computed itself |
| include_token_logprobs, length_normalize | leave that part of the reply empty (encode_tasks)                       |
| DetokenizeRequest.tokens           | no text                                                                       |

The other fields of PredictOptions are about generating and ignored without a word: core always sends them.
"""

from __future__ import annotations

from collections.abc import Sequence

from chatdelta import EmbeddingRequest, InvalidRequest, Origin, RerankRequest, ScoreRequest
from localai_proto import backend_pb2 as pb

MAX_TEXTS = 1024  # documents or candidates; each is a request in the engine
MAX_TOKENS = 1_000_000  # to make text of
ORIGIN = Origin(door="grpc", transport="grpc")


def decode_embedding(options: pb.PredictOptions, request_id: str) -> EmbeddingRequest:
    """Raises InvalidRequest."""
    tokens = tuple(options.EmbeddingTokens)
    for number, token_id in enumerate(tokens):
        if token_id < 0:
            raise _invalid(f"EmbeddingTokens[{number}]", f"is {token_id}: token ids are not negative")
    if not options.Embeddings and not tokens:
        raise _invalid("Embeddings", "and EmbeddingTokens are both empty")
    return EmbeddingRequest(request_id, ORIGIN, options.Embeddings or tokens)


def decode_rerank(request: pb.RerankRequest, request_id: str) -> RerankRequest:
    """Raises InvalidRequest naming what is empty, too many or negative."""
    if not request.query:
        raise _invalid("query", "is empty")
    if request.top_n < 0:
        raise _invalid("top_n", f"is {request.top_n}: it must be 0, for all documents, or more")
    return RerankRequest(request_id, ORIGIN, request.query, _texts("documents", request.documents))


def decode_score(request: pb.ScoreRequest, request_id: str) -> ScoreRequest:
    """Raises InvalidRequest naming what is empty or too many."""
    return ScoreRequest(request_id, ORIGIN, request.prompt, _texts("candidates", request.candidates))


def decode_detokenize(request: pb.DetokenizeRequest) -> tuple[int, ...]:
    """Raises InvalidRequest for more tokens than anybody has in one text."""
    if len(request.tokens) > MAX_TOKENS:
        raise _invalid("tokens", f"has {len(request.tokens)} entries; at most {MAX_TOKENS} are taken")
    return tuple(request.tokens)


def _texts(field: str, texts: Sequence[str]) -> tuple[str, ...]:
    if not texts:
        raise _invalid(field, "is empty")
    if len(texts) > MAX_TEXTS:
        raise _invalid(field, f"has {len(texts)} entries; at most {MAX_TEXTS} are taken")
    for number, text in enumerate(texts):
        if not text:
            raise _invalid(f"{field}[{number}]", "is empty")
    return tuple(texts)


def _invalid(field: str, finding: str) -> InvalidRequest:
    return InvalidRequest(f"{field} {finding}", code="invalid_body", param=field)
