# SPDX-License-Identifier: MIT
"""Servers under test as child processes: started, waited for, and always taken down."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from vllm_engine import EngineSpec
from vllm_nnrp.addresses import NnrpUrl, parse_nnrp_url
from vllm_nnrp.bench.asking import BenchFailed
from vllm_nnrp.bench.control import Control
from vllm_nnrp.bench.machine import process_cpu_s

READY_S = 300.0
STOP_S = 60.0
POLL_S = 0.1
TAIL_LINES = 15
MAX_OPERATIONS = 2048
TOOL_PARSER, REASONING_PARSER = "hermes", "qwen3"


class Kind(Enum):
    DOORS = "doors"
    HTTP = "http"
    REAL = "real"


class Plan(msgspec.Struct, frozen=True):
    """What a child is to be; paths are files it makes. Without `parsers` its model has none."""

    kind: Kind
    model: str
    control: str
    ready: str
    unix: str
    parsers: bool = True
    options: tuple[str, ...] = ()

    def spec(self) -> EngineSpec:
        tool, reasoning = (TOOL_PARSER, REASONING_PARSER) if self.parsers else (None, None)
        return EngineSpec(self.model, tool_parser=tool, reasoning_parser=reasoning)

    def arguments(self) -> list[str]:
        """The product's command line."""
        spec = self.spec()
        options = (
            f"tool_parser:{spec.tool_parser or 'none'}",
            f"reasoning_parser:{spec.reasoning_parser or 'none'}",
            *self.options,
        )
        return [
            *("--addr", "127.0.0.1:0", "--nnrp", "nnrp://127.0.0.1:0", "--nnrp", f"unix://{self.unix}"),
            *("--model", self.model, "--ready-file", self.ready, "--max-operations", str(MAX_OPERATIONS)),
            *(word for option in options for word in ("--option", option)),
        ]


class Server:
    """A child that is ready. Made by running()."""

    def __init__(self, process: subprocess.Popen[bytes], control: Control, doors: Mapping[str, Any]) -> None:
        self.pid = process.pid
        self.control = control
        self._doors = doors

    @property
    def grpc(self) -> str:
        return str(self._doors["grpc"])

    @property
    def http(self) -> str:
        return str(self._doors["http"])

    @property
    def nnrp(self) -> tuple[NnrpUrl, NnrpUrl]:
        """tcp and unix."""
        tcp, unix = map(parse_nnrp_url, self._doors["nnrp_all"])
        return tcp, unix

    def cpu_s(self) -> float:
        """Of this one process: a real engine's other processes are not in it."""
        return process_cpu_s(self.pid)


class Child:
    """A process that is starting. Made by running()."""

    def __init__(self, process: subprocess.Popen[bytes], plan: Plan, folder: Path) -> None:
        self._process = process
        self._plan = plan
        self._folder = folder

    async def ready(self) -> Server:
        """Raises BenchFailed, with the end of its log, if it does not get there."""
        give_up_s = time.monotonic() + READY_S
        while (doors := self._doors()) is None:
            if self._process.poll() is not None or time.monotonic() > give_up_s:
                raise BenchFailed(f"a server did not get ready:\n{self._log_tail()}")
            await asyncio.sleep(POLL_S)
        return Server(self._process, await Control.connect(Path(self._plan.control)), doors)

    def _doors(self) -> Mapping[str, Any] | None:
        """What its ready file says, once there is one: it appears whole."""
        ready = Path(self._plan.ready)
        if not ready.exists():
            return None
        doors: Mapping[str, Any] = json.loads(ready.read_text(encoding="utf-8"))
        return doors

    def _log_tail(self) -> str:
        text = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-TAIL_LINES:])


@contextmanager
def running(
    kind: Kind, model: Path, folder: Path, *, parsers: bool = True, options: tuple[str, ...] = ()
) -> Iterator[Child]:
    """A child whose files are in `folder`; it is gone when the context is left."""
    folder.mkdir()
    paths = {name: str(folder / name) for name in ("control", "ready", "unix")}
    plan = Plan(kind, str(model), parsers=parsers, options=options, **paths)
    command = [sys.executable, "-P", "-m", "vllm_nnrp.bench.child", msgspec.json.encode(plan).decode()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield Child(process, plan, folder)
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def scripted_folder(memorised: Path, folder: Path) -> Path:
    """The memorised model's tokenizer and template, with room for long answers and without weights."""
    folder.mkdir()
    for path in memorised.iterdir():
        if path.suffix != ".safetensors":
            shutil.copyfile(path, folder / path.name)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["max_position_embeddings"] = 1 << 16
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


async def built_model(name: str) -> Path:
    """The folder of a model of the project's, built in a process of its own if need be. Raises BenchFailed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "vllm_nnrp.models", name),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if process.returncode != 0:
        raise BenchFailed(f"the {name} model cannot be built: {errors.decode(errors='replace').strip()[-500:]}")
    return Path(output.decode().split("\n")[-2])
