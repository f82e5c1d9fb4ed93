# SPDX-License-Identifier: MIT
"""What can be asked of a model beside generating text: its requests and results, one pair for each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from chatdelta.deltas import Usage
from chatdelta.requests import Origin


class Task(Enum):
    """What a loaded model is for. Scoring continuations is part of GENERATE: it takes the same model."""

    GENERATE = "generates text"
    EMBED = "makes embeddings"
    RERANK = "ranks documents"


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A text, or its token ids, to be made into vectors."""

    request_id: str  # unique in the process
    origin: Origin
    input: str | tuple[int, ...]


class EmbeddingLayout(Enum):
    FINAL = "final"  # one vector for the whole input
    PER_TOKEN = "per_token"  # one vector a token, for somebody else to pool


@dataclass(frozen=True, slots=True)
class Embedding:
    """`values` are the vectors one after another, each of `dimensions` numbers."""

    values: Sequence[float]
    dimensions: int
    layout: EmbeddingLayout
    prompt_tokens: int

    @property
    def vectors(self) -> int:
        return len(self.values) // self.dimensions

    @property
    def usage(self) -> Usage:
        return Usage(prompt_tokens=self.prompt_tokens)


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """How relevant is each of the documents to the query?"""

    request_id: str
    origin: Origin
    query: str
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relevance:
    """One score a document, in the documents' order; the higher, the more relevant. The scale is the model's."""

    scores: tuple[float, ...]
    prompt_tokens: int

    @property
    def usage(self) -> Usage:
        return Usage(prompt_tokens=self.prompt_tokens)


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """How likely is each of the candidates as the continuation of the prompt?"""

    request_id: str
    origin: Origin
    prompt: str
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token's text, alone, and its log-probability in nats, given all before it."""

    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class CandidateScore:
    """A candidate's own tokens: of prompt and candidate as one text, those beyond what the prompt alone begins with.

    Where the candidate's first characters form one token with the prompt's last ones, that token is the candidate's.
    """

    tokens: tuple[ScoredToken, ...]

    @property
    def log_prob(self) -> float:
        """Of all tokens together, in nats."""
        return sum(token.logprob for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Scores:
    """One score a candidate, in the candidates' order. `prompt_tokens` counts the prompt once."""

    candidates: tuple[CandidateScore, ...]
    prompt_tokens: int

    @property
    def usage(self) -> Usage:
        return Usage(prompt_tokens=self.prompt_tokens)


TaskRequest = EmbeddingRequest | RerankRequest | ScoreRequest
TaskResult = Embedding | Relevance | Scores


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """What the model's chat template makes of a short chat with thinking on; empty where it has no template."""

    rendered: str
    supports_thinking: bool
