# SPDX-License-Identifier: MIT
"""The RPCs beside generation: what a pooling model is for, scoring, tokens to text, figures."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc

from chatdelta import BackendError, Engine, EngineInfo, Task, TaskRequest, TaskResult
from chatserving import EngineHost, RequestRunner, TaskRunner
from localai_proto import backend_pb2 as pb
from localai_proto import backend_pb2_grpc
from vllm_nnrp.grpc_door.decode_tasks import (
    ORIGIN,
    decode_detokenize,
    decode_embedding,
    decode_rerank,
    decode_score,
)
from vllm_nnrp.grpc_door.encode import valid_text
from vllm_nnrp.grpc_door.encode_tasks import (
    encode_embedding,
    encode_metadata,
    encode_metrics,
    encode_rerank,
    encode_score,
)
from vllm_nnrp.grpc_door.errors import Context, check_identity, rpc_errors
from vllm_nnrp.loading import Loader

Result = TypeVar("Result", bound=TaskResult)


def request_id() -> str:
    """Ours, not the caller's: two callers may choose the same, and the engine refuses a second."""
    return f"grpc-{uuid.uuid4().hex}"


class TaskServicer(backend_pb2_grpc.BackendServicer):
    """One request, one reply. The generating RPCs are built on top of it (`TextServicer`)."""

    def __init__(self, host: EngineHost, runner: RequestRunner, loader: Loader) -> None:
        self._host = host
        self._runner = runner
        self._loader = loader
        self._tasks = TaskRunner(host, runner.sinks)

    def _admit(self, identity: str, task: Task | None = None) -> EngineInfo:
        """The loaded model, if it is the one meant and for that task.

        To be called before the request is looked at: core reloads where no model is loaded.
        """
        info = self._host.engine().info
        check_identity(identity, self._loader.identity)
        if task is not None:
            info.require(task)
        return info

    @contextmanager
    def _observing(self, rid: str, operation: str) -> Iterator[None]:
        """Around what comes before a run: a request that is refused there has a record, too."""
        try:
            yield
        except BackendError as exc:
            self._runner.refuse(exc, request_id=rid, operation=operation, origin=ORIGIN)
            raise

    async def Embedding(self, request: pb.PredictOptions, context: Context) -> pb.EmbeddingResult:
        """Core reads RESOURCE_EXHAUSTED as "the text is too long"."""
        rid = request_id()
        async with rpc_errors(context, rid, too_long=grpc.StatusCode.RESOURCE_EXHAUSTED):
            with self._observing(rid, "embedding"):
                info = self._admit(request.ModelIdentity, Task.EMBED)
                decoded = decode_embedding(request, rid)
            embedding = await self._run(decoded, lambda engine: engine.embed(decoded), "embedding", info)
            return encode_embedding(embedding)
        raise AssertionError("rpc_errors lets nothing pass")

    async def Rerank(self, request: pb.RerankRequest, context: Context) -> pb.RerankResult:
        rid = request_id()
        async with rpc_errors(context, rid):
            with self._observing(rid, "rerank"):
                info = self._admit(request.ModelIdentity, Task.RERANK)
                decoded = decode_rerank(request, rid)
            relevance = await self._run(decoded, lambda engine: engine.rerank(decoded), "rerank", info)
            return encode_rerank(request, relevance)
        raise AssertionError("rpc_errors lets nothing pass")

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:
        rid = request_id()
        async with rpc_errors(context, rid):
            with self._observing(rid, "score"):
                info = self._admit(request.ModelIdentity, Task.GENERATE)
                decoded = decode_score(request, rid)
            scores = await self._run(decoded, lambda engine: engine.score(decoded), "score", info)
            return encode_score(request, scores)
        raise AssertionError("rpc_errors lets nothing pass")

    async def _run(
        self, request: TaskRequest, ask: Callable[[Engine], Awaitable[Result]], operation: str, info: EngineInfo
    ) -> Result:
        return await self._tasks.run(request, ask, operation=operation, model=info.model_names[0])

    async def Detokenize(self, request: pb.DetokenizeRequest, context: Context) -> pb.DetokenizeResponse:
        rid = request_id()
        async with rpc_errors(context, rid):
            self._admit("")
            tokens = decode_detokenize(request)
            with self._host.operation(rid) as engine:
                return pb.DetokenizeResponse(content=valid_text(await engine.detokenize(tokens)))
        raise AssertionError("rpc_errors lets nothing pass")

    async def GetMetrics(self, request: pb.MetricsRequest, context: Context) -> pb.MetricsResponse:
        async with rpc_errors(context, "metrics"):
            self._admit("")
            return encode_metrics(self._runner.throughput())
        raise AssertionError("rpc_errors lets nothing pass")

    async def ModelMetadata(self, request: pb.ModelOptions, context: Context) -> pb.ModelMetadataResponse:
        """Of the model that is loaded, whatever the request names."""
        rid = request_id()
        async with rpc_errors(context, rid):
            self._admit("")
            with self._host.operation(rid) as engine:
                return encode_metadata(await engine.prompt_template())
        raise AssertionError("rpc_errors lets nothing pass")
