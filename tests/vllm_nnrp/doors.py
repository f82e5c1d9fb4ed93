# SPDX-License-Identifier: MIT
"""A real gRPC server on 127.0.0.1 around a ScriptedEngine, and the waits that tests need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from chatdelta import Engine, EngineInfo, Observation, PromptTemplate
from chatdelta.testing import SCRIPTED_INFO, Script, ScriptedEngine, Step, TaskStep
from chatserving import EngineHost, RequestRunner
from localai_proto import backend_pb2 as pb
from localai_proto import backend_pb2_grpc
from tests.support.records import Records
from tests.support.waiting import until
from vllm_engine import EngineSpec
from vllm_nnrp.addresses import Address
from vllm_nnrp.grpc_door import GrpcDoor, TextServicer, open_grpc
from vllm_nnrp.load_options import ModelPlan
from vllm_nnrp.loading import Loader, OpenEngine

WAIT_S = 10.0
IDENTITY = "org/model"
LOOPBACK = Address("127.0.0.1", 0)


@dataclass(frozen=True)
class Door:
    """Everything a test may look at. `engine` is what an unmodified LoadModel opens."""

    engine: ScriptedEngine
    host: EngineHost
    loader: Loader
    server: GrpcDoor
    channel: grpc.aio.Channel
    stub: Any  # the generated stub has no annotations
    observations: list[Observation]

    async def idle(self) -> None:
        """Wait until no request is anywhere."""
        await until(lambda: not self.engine.running and not self.host.in_flight)


async def until_still(value: Callable[[], int], still_s: float = 0.3) -> int:
    """Wait until a growing number stops growing; what it came to."""
    loop = asyncio.get_running_loop()
    last, since = value(), loop.time()
    async with asyncio.timeout(WAIT_S):
        while loop.time() - since < still_s:
            await asyncio.sleep(0.01)
            if value() != last:
                last, since = value(), loop.time()
    return last


async def no_hook(plan: ModelPlan) -> None:
    """Loader hook that does nothing."""


@asynccontextmanager
async def open_door(
    script: Script | Iterable[Step] = (),
    *,
    tasks: Iterable[TaskStep] = (),
    template: PromptTemplate | None = None,
    info: EngineInfo = SCRIPTED_INFO,
    token: str | None = None,
    is_loaded: bool = True,
    open_engine: OpenEngine | None = None,
    drain_s: float = 0.3,
    max_operations: int = 256,
    text_in_message: bool = False,
) -> AsyncIterator[Door]:
    engine = ScriptedEngine(script, tasks=tasks, template=template, info=info)
    sink = Records()
    host = EngineHost(max_operations=max_operations, drain_s=drain_s)

    async def open_scripted(_spec: EngineSpec) -> Engine:
        return engine

    loader = Loader(host, open_engine or open_scripted, before=no_hook, after=no_hook)
    servicer = TextServicer(host, RequestRunner(host, (sink,)), loader, text_in_message=text_in_message)
    door = await open_grpc(LOOPBACK, servicer, token=token)
    try:
        if is_loaded:
            await loader.load(ModelPlan(EngineSpec(IDENTITY), IDENTITY))
        async with grpc.aio.insecure_channel(str(door.address)) as channel:
            stub = backend_pb2_grpc.BackendStub(channel)
            yield Door(engine, host, loader, door, channel, stub, sink.all)
    finally:
        await host.close()
        await door.close(0)


def chat(**fields: Any) -> pb.PredictOptions:
    """A chat of one message."""
    return pb.PredictOptions(
        Messages=[pb.Message(role="user", content="hello")], UseTokenizerTemplate=True, TopP=1, **fields
    )


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a call that must fail ended; replies of a stream are read up to there."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("the call did not fail")
