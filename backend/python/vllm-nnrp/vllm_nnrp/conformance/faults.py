# SPDX-License-Identifier: MIT
"""An engine with one more model beside its own: one that always fails, as the recipe for backend errors wants it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from chatdelta import (
    BackendFailure,
    Embedding,
    EmbeddingRequest,
    Engine,
    EngineDelta,
    EngineInfo,
    GenerationRequest,
    PromptTemplate,
    Relevance,
    RerankRequest,
    ScoreRequest,
    Scores,
)
from chatserving import closing

FAULT_MODEL = "backend-error"


class FaultEngine:
    """The engine it is given, and FAULT_MODEL. For conformance runs only: no backend serves it otherwise."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def info(self) -> EngineInfo:
        info = self._engine.info
        return replace(info, model_names=(*info.model_names, FAULT_MODEL))

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineDelta, None]:
        if request.body.get("model") == FAULT_MODEL:
            raise BackendFailure("this model fails every request")
        async with closing(self._engine.generate(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def abort(self, request_id: str) -> bool:
        return await self._engine.abort(request_id)

    async def tokenize(self, request: GenerationRequest) -> tuple[int, ...]:
        return await self._engine.tokenize(request)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        return await self._engine.detokenize(token_ids)

    async def embed(self, request: EmbeddingRequest) -> Embedding:
        return await self._engine.embed(request)

    async def rerank(self, request: RerankRequest) -> Relevance:
        return await self._engine.rerank(request)

    async def score(self, request: ScoreRequest) -> Scores:
        return await self._engine.score(request)

    async def prompt_template(self) -> PromptTemplate:
        return await self._engine.prompt_template()

    def check(self) -> None:
        self._engine.check()

    async def wait_dead(self) -> None:
        await self._engine.wait_dead()

    async def stop(self) -> None:
        await self._engine.stop()
