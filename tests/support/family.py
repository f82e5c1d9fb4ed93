# SPDX-License-Identifier: MIT
"""A backend whose parent can be killed, as LocalAI can be."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.process import REPOSITORY, START_S, all_gone, environment
from tests.support.waiting import until
from vllm_nnrp.processes import descendants

PARENT = """
import subprocess, sys, time
with open(sys.argv[1], "wb") as log:
    child = subprocess.Popen(sys.argv[2:], stdout=log, stderr=log)
print(child.pid, flush=True)
time.sleep(3600)
"""


@dataclass
class Family:
    """A started backend, below a parent that does nothing but to be there."""

    parent: asyncio.subprocess.Process
    pid: int
    ready_file: Path
    log: Path

    async def ready(self) -> dict[str, Any]:
        """The ready file's content, once it is there."""
        await until(lambda: self.ready_file.exists() or all_gone([self.pid]), timeout_s=START_S)
        assert self.ready_file.exists(), self.log.read_text()
        content: dict[str, Any] = json.loads(self.ready_file.read_text())
        return content

    def everyone(self) -> list[int]:
        """The backend and all that is below it."""
        return [self.pid, *descendants(self.pid)]

    async def orphan(self) -> list[int]:
        """SIGKILL to the parent; who was there before."""
        everyone = self.everyone()
        self.parent.kill()
        await self.parent.wait()
        return everyone

    async def dies_out(self, *, within_s: float) -> float:
        """Kill the parent. Seconds until nobody is left; raises TimeoutError."""
        everyone = await self.orphan()
        started_s = time.monotonic()
        await until(lambda: all_gone(everyone), timeout_s=within_s, every_s=0.02)
        return time.monotonic() - started_s


@asynccontextmanager
async def family(tmp_path: Path, *command: str, **env: str) -> AsyncIterator[Family]:
    """Start `command`, a backend's, from a process between it and us. Nobody is left on exit."""
    ready_file, log = tmp_path / "ready.json", tmp_path / "backend.log"
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PARENT,
        str(log),
        *command,
        f"--ready-file={ready_file}",
        cwd=REPOSITORY,
        env=environment(env),
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    started = Family(parent, int(await parent.stdout.readline()), ready_file, log)
    try:
        yield started
    finally:
        for pid in started.everyone():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            parent.kill()
        await parent.communicate()
