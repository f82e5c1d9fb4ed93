# SPDX-License-Identifier: MIT
"""The whole backend as a process of its own, around the memorised model, and how one looks at it from outside."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from localai_proto import backend_pb2 as pb
from tests.real_engine.clients import envelope, predict_options, read_answer
from tests.real_engine.test_answers import BY_NAME, check
from tests.support.process import BACKEND, Run, client, started
from tests.support.sdk_client import SdkClient

HEALTH = pb.HealthMessage()
HELLO = BY_NAME["hello"]
LOAD_S = 400.0  # two busy cores, cold caches


class Backend:
    """The started process and a stub on its gRPC door."""

    def __init__(self, run: Run, ready: dict[str, Any], stub: Any, model: Path, health_after_s: float) -> None:
        self.run = run
        self.stub = stub
        self.grpc_address: str = ready["grpc"]
        self.model = model
        self.health_after_s = health_after_s

    def load_options(self, **fields: Any) -> pb.ModelOptions:
        options: dict[str, Any] = {
            "Model": "memorised",
            "ModelFile": str(self.model),
            "DType": "float32",
            "Options": ["tool_parser:hermes", "reasoning_parser:qwen3"],
        }
        return pb.ModelOptions(**options | fields)

    async def load(self, **fields: Any) -> pb.Result:
        result: pb.Result = await self.stub.LoadModel(self.load_options(**fields), timeout=LOAD_S)
        return result

    async def state(self) -> int:
        status: pb.StatusResponse = await self.stub.Status(HEALTH)
        return status.state

    def engine_cores(self) -> list[int]:
        return [pid for pid in self.run.children() if is_engine_core(pid)]

    @property
    def nnrp_port(self) -> int:
        url = json.loads(self.run.ready_file.read_text())["nnrp"]
        return int(url.rpartition(":")[2])

    async def answers(self) -> None:
        """The process is alive: Health says so, and a normal request is answered over every door that is open."""
        assert (await self.stub.Health(HEALTH)).message == b"OK"
        reply = await self.stub.Predict(predict_options(HELLO))
        assert reply.message.decode().strip() == HELLO.content
        if json.loads(self.run.ready_file.read_text())["nnrp"]:
            await asyncio.to_thread(self._ask_nnrp)

    def _ask_nnrp(self) -> None:
        with SdkClient.connect(self.nnrp_port) as sdk:
            session = sdk.open_session()
            check(read_answer(session.collect(session.submit(envelope(HELLO)), timeout_s=60)), HELLO)


@asynccontextmanager
async def backend_process(folder: Path, *arguments: str, **env: str) -> AsyncIterator[Backend]:
    """A backend that waits for LoadModel; its log is `backend.log` in the folder."""
    from vllm_nnrp.models.memorised import build_memorised_model

    model = build_memorised_model()
    started_s = time.monotonic()
    env = {"VLLM_CPU_KVCACHE_SPACE": "1"} | env
    log = folder / "backend.log"
    async with started(folder, "--addr=127.0.0.1:0", *arguments, python=(str(BACKEND),), log=log, **env) as run:
        ready = await run.ready()
        async with client(ready["grpc"]) as stub:
            await stub.Health(HEALTH, wait_for_ready=True)
            yield Backend(run, ready, stub, model, time.monotonic() - started_s)


def is_engine_core(pid: int) -> bool:
    try:
        return b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
