# SPDX-License-Identifier: MIT
"""The backend as a process: started, watched from outside, and never left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

import vllm_nnrp
from localai_proto import backend_pb2_grpc
from tests.support.waiting import until
from vllm_nnrp.processes import descendants
from vllm_nnrp.settings_table import SETTINGS

REPOSITORY = Path(__file__).parents[2]
BACKEND = Path(vllm_nnrp.__file__).parents[1] / "backend.py"
# A client that comes too early must not be the one who waits. ("min" is the time for one attempt: two busy cores.)
FAST_RECONNECT = [(f"grpc.{name}_reconnect_backoff_ms", 100) for name in ("initial", "max")]
START_S = 60.0  # two busy cores


@dataclass
class Run:
    """A started backend."""

    process: asyncio.subprocess.Process
    ready_file: Path
    log: Path | None = None  # where its output goes; None: to the pipes that output() reads

    async def ready(self) -> dict[str, Any]:
        """The ready file's content, once it is there."""
        await until(lambda: self.ready_file.exists() or self.process.returncode is not None, timeout_s=START_S)
        assert self.process.returncode is None, (await self.output())[1]
        content: dict[str, Any] = json.loads(self.ready_file.read_text())
        return content

    async def output(self) -> tuple[str, str]:
        """Waits for the end: stdout and stderr, or nothing and the log."""
        out, err = await asyncio.wait_for(self.process.communicate(), START_S)
        return (out.decode(), err.decode()) if self.log is None else ("", self.log.read_text())

    def children(self) -> list[int]:
        return descendants(self.process.pid)


@asynccontextmanager
async def started(
    tmp_path: Path, *arguments: str, python: tuple[str, ...] = (str(BACKEND),), log: Path | None = None, **env: str
) -> AsyncIterator[Run]:
    """`python` is what Python runs. With `log`, the output goes to that file instead of pipes nobody reads."""
    ready_file = tmp_path / "ready.json"
    with open(log, "wb") if log else nullcontext() as output:  # noqa: ASYNC230 - once, before anything is served
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *python,
            *arguments,
            f"--ready-file={ready_file}",
            cwd=REPOSITORY,
            env=environment(env),
            stdout=output or asyncio.subprocess.PIPE,
            stderr=output or asyncio.subprocess.PIPE,
        )
    run = Run(process, ready_file, log)
    try:
        yield run
    finally:
        if process.returncode is None:
            for pid in run.children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


def environment(extra: dict[str, str]) -> dict[str, str]:
    """Ours, but for what would be a setting of the backend."""
    settings = {setting.variable for setting in SETTINGS}
    return {name: value for name, value in os.environ.items() if name not in settings} | extra


@asynccontextmanager
async def client(address: str) -> AsyncIterator[Any]:
    """A stub of the gRPC door (the generated stub has no annotations)."""
    async with grpc.aio.insecure_channel(address, options=FAST_RECONNECT) as channel:
        yield backend_pb2_grpc.BackendStub(channel)


def all_gone(pids: list[int]) -> bool:
    return not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
