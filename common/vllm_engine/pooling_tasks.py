# SPDX-License-Identifier: MIT
"""Embeddings and relevance as an engine has them, whatever its vLLM offers for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from chatdelta import (
    Embedding,
    EmbeddingRequest,
    InvalidRequest,
    Relevance,
    RerankRequest,
    Task,
    UnsupportedOperation,
)


class PoolingTasks(Protocol):
    """What a pooling model is asked for."""

    @property
    def tasks(self) -> frozenset[Task]: ...

    async def embed(self, request: EmbeddingRequest) -> Embedding:
        """Needs Task.EMBED among the tasks."""

    async def rerank(self, request: RerankRequest) -> Relevance:
        """Needs Task.RERANK among the tasks."""


class NoPooling:
    """Of a vLLM that has no means for them outside its server."""

    tasks: frozenset[Task] = frozenset()

    async def embed(self, request: EmbeddingRequest) -> Embedding:
        raise UnsupportedOperation("this vLLM makes no embeddings here")

    async def rerank(self, request: RerankRequest) -> Relevance:
        raise UnsupportedOperation("this vLLM ranks no documents here")


def served_tasks(pooling: PoolingTasks, supported_tasks: Sequence[str]) -> frozenset[Task]:
    """Our tasks of a model. Raises InvalidRequest where there is none: nothing could be asked of it."""
    tasks = pooling.tasks | ({Task.GENERATE} if "generate" in supported_tasks else set())
    if not tasks:
        raise InvalidRequest(
            f"the model serves {', '.join(supported_tasks)}: neither text, embeddings nor the relevance of documents",
            param="model",
        )
    return tasks
