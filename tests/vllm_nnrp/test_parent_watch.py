# SPDX-License-Identifier: MIT
"""The end of whoever started the backend: when it is followed, and when not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.support.family import Family, family
from tests.support.process import BACKEND, client
from tests.support.waiting import until
from vllm_nnrp.parent_watch import INIT, watch_parent

SCRIPTED = (sys.executable, "-m", "tests.vllm_nnrp.scripted_backend", "--addr=127.0.0.1:0")
FAST = {"LOCALAI_BACKEND_PARENT_WATCH_INTERVAL": "50ms"}
GONE_S = 5.0
HEALTH = pb.HealthMessage()


async def load(backend: Family, model: str) -> None:
    async with client((await backend.ready())["grpc"]) as stub:
        assert (await stub.LoadModel(pb.ModelOptions(Model=model))).success


@pytest.mark.asyncio
async def test_an_orphan_leaves_within_5_seconds_with_its_engine_and_its_ready_file(
    tmp_path: Path, figure: Figure
) -> None:
    async with family(tmp_path, *SCRIPTED) as backend:
        await load(backend, "org/m")
        assert len(backend.everyone()) == 2
        figure(f"all gone {await backend.dies_out(within_s=GONE_S):.2f} s after the parent was killed")
        assert not backend.ready_file.exists()
        assert "the process that started the backend is gone" in backend.log.read_text()


@pytest.mark.asyncio
async def test_an_orphan_leaves_in_the_middle_of_a_load(tmp_path: Path) -> None:
    async with family(tmp_path, *SCRIPTED) as backend, client((await backend.ready())["grpc"]) as stub:
        loading = stub.LoadModel(pb.ModelOptions(Model="org/slow-load"))
        await until(lambda: len(backend.everyone()) == 2)
        await backend.dies_out(within_s=GONE_S)
        loading.cancel()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        pytest.param((), {"LOCALAI_BACKEND_PARENT_WATCH": "false"}, id="switched off"),
        pytest.param(("--model=org/m",), {}, id="standing alone"),
    ],
)
async def test_an_orphan_goes_on(tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str]) -> None:
    async with family(tmp_path, *SCRIPTED, *arguments, **FAST, **env) as backend:
        ready = await backend.ready()
        await backend.orphan()
        async with client(ready["grpc"]) as stub:
            for _ in range(20):  # so many intervals, at least
                assert (await stub.Health(HEALTH)).message == b"OK"
                await asyncio.sleep(0.05)


@pytest.mark.asyncio
async def test_standing_alone_it_leaves_if_it_is_told_to(tmp_path: Path) -> None:
    env = {**FAST, "LOCALAI_BACKEND_PARENT_WATCH": "true"}
    async with family(tmp_path, *SCRIPTED, "--model=org/m", **env) as backend:
        await backend.ready()
        await backend.dies_out(within_s=GONE_S)


@pytest.mark.asyncio
async def test_the_interval_is_the_one_of_the_environment(tmp_path: Path) -> None:
    async with family(tmp_path, *SCRIPTED, **FAST) as backend:
        await backend.ready()
        assert await backend.dies_out(within_s=GONE_S) < 1.5  # the default would be up to two seconds


@pytest.mark.asyncio
async def test_run_sh_puts_nobody_between_the_parent_and_the_backend(tmp_path: Path) -> None:
    """Its shell is replaced by Python; an environment of its own stands in for the installed one."""
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for name in ("run.sh", "backend.py"):
        (tmp_path / name).write_bytes((BACKEND.parent / name).read_bytes())
    async with family(tmp_path, "bash", str(tmp_path / "run.sh"), "--addr=127.0.0.1:0", **FAST) as backend:
        assert (await backend.ready())["pid"] == backend.pid
        await backend.dies_out(within_s=GONE_S)


def gone(parent_pid: int) -> threading.Event:
    """Set if the first look, and there is no second, says that this parent is gone."""
    event = threading.Event()
    watch_parent(parent_pid, 3600, event.set)
    return event


def test_a_parent_that_was_gone_before_the_first_look_is_noticed() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert gone(process.pid).wait(GONE_S)


def test_a_living_parent_and_process_1_are_never_gone() -> None:
    assert not gone(os.getppid()).wait(0.2)
    assert not gone(INIT).wait(0.2)
