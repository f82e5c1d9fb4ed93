# SPDX-License-Identifier: MIT
"""The seam behind the listeners: what they may ask of an engine, and nothing about which engine it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from chatdelta.deltas import EngineDelta
from chatdelta.errors import UnsupportedOperation
from chatdelta.requests import GenerationRequest
from chatdelta.tasks import (
    Embedding,
    EmbeddingRequest,
    PromptTemplate,
    Relevance,
    RerankRequest,
    ScoreRequest,
    Scores,
    Task,
)


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is loaded; the source of the capability document and of every answer about the model."""

    model_names: tuple[str, ...]  # the first is the default; a request names one of them
    max_model_len: int
    engine_version: str
    binding: str
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    multimodal: bool = False
    priority_scheduling: bool = False  # a request's priority means something
    tasks: frozenset[Task] = frozenset({Task.GENERATE})
    lacks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # feature: what its vLLM cannot

    def require(self, task: Task) -> None:
        """Raise UnsupportedOperation if the model is not for `task`; the text says what it is for."""
        if task not in self.tasks:
            served = " and ".join(each.value for each in Task if each in self.tasks)
            raise UnsupportedOperation(f"the loaded model {served}; this needs one that {task.value}")


class Engine(Protocol):
    """One loaded model. Whoever built it stops it: a listener never does."""

    @property
    def info(self) -> EngineInfo: ...

    def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineDelta, None]:
        """Deltas of every choice until each has its finish reason.

        Closing the generator aborts the request in the engine. Raises BackendError subclasses only: InvalidRequest and
        its kind before the first delta, EngineDead at any time.
        """

    async def abort(self, request_id: str) -> bool:
        """Abort a running request; whether the engine knew it.

        Its stream then ends with FinishReason.ABORT; a task's request raises RequestCancelled.
        """

    async def tokenize(self, request: GenerationRequest) -> tuple[int, ...]:
        """Token ids of the prompt as it would be generated from."""

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of the tokens, special ones too. Raises InvalidRequest for an id that is no token."""

    async def embed(self, request: EmbeddingRequest) -> Embedding:
        """Needs Task.EMBED. Like the others below it may be cancelled, and raises BackendError subclasses only."""

    async def rerank(self, request: RerankRequest) -> Relevance:
        """Needs Task.RERANK."""

    async def score(self, request: ScoreRequest) -> Scores:
        """Needs Task.GENERATE. Raises InvalidRequest for a candidate without a token of its own."""

    async def prompt_template(self) -> PromptTemplate:
        """What the model's chat template does with thinking on and off."""

    def check(self) -> None:
        """Raise EngineDead if the engine can serve nothing any more."""

    async def wait_dead(self) -> None:
        """Return when the engine has died; never returns while it lives."""

    async def stop(self) -> None:
        """Stop the engine and every process it started. Idempotent."""
