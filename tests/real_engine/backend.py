# SPDX-License-Identifier: MIT
"""The real engine behind both doors, in the test's own process, and vLLM's own count of running requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from chatserving import EngineHost, RequestRunner
from localai_proto import backend_pb2_grpc
from nnrp_openai import ChatAdapter, ProfileHandler, ProfileLimits
from nnrp_wire import NnrpListener, open_listener
from tests.support.records import Records
from tests.support.waiting import until
from vllm_engine import EngineSpec
from vllm_engine.opening import open_engine
from vllm_nnrp.addresses import Address
from vllm_nnrp.grpc_door import TextServicer, open_grpc
from vllm_nnrp.load_options import ModelPlan
from vllm_nnrp.loading import Loader

MODEL = "memorised"
STATS_BOUND_S = 1.0  # the promise: after a cancel the scheduler runs nothing within this time


class SchedulerCounts:
    """What vLLM's scheduler said last, through vLLM's own stat-logger interface."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting = 0
        self.peak = 0

    def factory(self, _vllm_config: Any, _engine_index: int) -> Any:
        from vllm.v1.metrics.loggers import StatLoggerBase

        counts = self

        class Counter(StatLoggerBase):  # type: ignore[misc]  # vLLM is untyped here
            def __init__(self) -> None: ...

            def record(self, scheduler_stats: Any, *_args: Any, **_kwargs: Any) -> None:
                if scheduler_stats is not None:
                    counts.running = scheduler_stats.num_running_reqs
                    counts.waiting = scheduler_stats.num_waiting_reqs
                    counts.peak = max(counts.peak, counts.running)

            def log_engine_initialized(self) -> None: ...

        return Counter()

    async def idle(self) -> None:
        """Wait, no longer than the promise, until nothing runs or waits."""
        await until(lambda: self.running == 0 and self.waiting == 0, timeout_s=STATS_BOUND_S)

    async def busy(self, count: int = 1) -> None:
        await until(lambda: self.running >= count, timeout_s=30)


@dataclass(frozen=True)
class RealBackend:
    """Everything a test may look at."""

    host: EngineHost
    stub: Any  # the generated stub has no annotations
    grpc_address: str
    nnrp: NnrpListener
    counts: SchedulerCounts
    records: Records


@asynccontextmanager
async def real_backend(
    model: Path,
    *,
    tool_parser: str | None = "hermes",
    reasoning_parser: str | None = "qwen3",
    **engine_args: Any,
) -> AsyncIterator[RealBackend]:
    """Load `model` and open both doors on free ports. Without further `engine_args` it runs in float32."""
    counts, records = SchedulerCounts(), Records()
    host = EngineHost(drain_s=2.0)
    runner = RequestRunner(host, (records,))

    async def load(spec: EngineSpec) -> Any:
        return await open_engine(spec, stat_loggers=[counts.factory], allow_untested=True)  # whatever is installed

    async def nothing(_plan: ModelPlan) -> None: ...

    loader = Loader(host, load, before=nothing, after=nothing)
    handler = ProfileHandler(ChatAdapter(host, runner), limits=ProfileLimits(), token=None)
    listener = await open_listener(handler, "127.0.0.1", 0)
    door = await open_grpc(Address("127.0.0.1", 0), TextServicer(host, runner, loader), token=None)
    spec = EngineSpec(
        str(model),
        served_names=(MODEL,),
        tool_parser=tool_parser,
        reasoning_parser=reasoning_parser,
        engine_args={"dtype": "float32", "enforce_eager": True} | engine_args,
    )
    try:
        await loader.load(ModelPlan(spec, MODEL))
        async with grpc.aio.insecure_channel(str(door.address)) as channel:
            stub = backend_pb2_grpc.BackendStub(channel)
            yield RealBackend(host, stub, str(door.address), listener, counts, records)
    finally:
        await host.close()
        await listener.drain(1.0)
        await handler.close()
        await door.close(0)
