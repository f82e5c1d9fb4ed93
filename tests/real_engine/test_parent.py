# SPDX-License-Identifier: MIT
"""The real process tree, when whoever started the backend is killed: all of it is gone within five seconds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.real_engine.process import LOAD_S, is_engine_core
from tests.support.family import Family, family
from tests.support.models import memorised_model_path
from tests.support.process import BACKEND, client
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio
GONE_S = 5.0


def importing(backend: Family) -> bool:
    """vLLM is being imported, by the loading thread; no process of an engine is there yet."""
    return "torch/lib" in Path(f"/proc/{backend.pid}/maps").read_text()


def starting(backend: Family) -> bool:
    """A process of the engine has been started, and is not there yet."""
    return len(backend.everyone()) > 1


def loaded(backend: Family) -> bool:
    return any(is_engine_core(pid) for pid in backend.everyone())


@pytest.mark.parametrize("moment", [importing, starting, loaded])
async def test_nobody_outlives_a_killed_parent(
    tmp_path: Path, figure: Figure, moment: Callable[[Family], bool]
) -> None:
    command = (sys.executable, str(BACKEND), "--addr=127.0.0.1:0")
    options = pb.ModelOptions(Model="memorised", ModelFile=str(memorised_model_path()), DType="float32")
    async with (
        family(tmp_path, *command, VLLM_CPU_KVCACHE_SPACE="1") as backend,
        client((await backend.ready())["grpc"]) as stub,
    ):
        load = asyncio.ensure_future(stub.LoadModel(options, timeout=LOAD_S))
        await until(lambda: moment(backend), timeout_s=LOAD_S, every_s=0.05)
        if moment is loaded:
            assert (await load).success
        figure(f"{moment.__name__}: all gone {await backend.dies_out(within_s=GONE_S):.2f} s after the parent")
        await asyncio.gather(load, return_exceptions=True)
