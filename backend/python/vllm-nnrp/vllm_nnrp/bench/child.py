# SPDX-License-Identifier: MIT
"""A server under test: `python -m vllm_nnrp.bench.child PLAN`, where PLAN is JSON (children.Plan). Ends with its stdin.

`doors` is the product's own process, `http` vLLM's server as `vllm serve` runs it, both on a scripted engine client;
`real` is the product's process on a real engine, with vLLM's HTTP app beside our doors in it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from chatdelta import Engine
from vllm_engine import EngineSpec
from vllm_nnrp.bench.children import Kind, Plan
from vllm_nnrp.bench.commands import engine_commands, real_commands, scripted_commands
from vllm_nnrp.bench.control import open_control
from vllm_nnrp.main import main as serve
from vllm_nnrp.main import open_vllm
from vllm_nnrp.settings_table import ALLOW_UNTESTED_VLLM


def main() -> int:
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _serve_http(plan) if plan.kind is Kind.HTTP else _serve_doors(plan)


def _end_with_stdin() -> None:
    """Whoever measures holds our stdin: no server outlives a run that was killed."""
    while os.read(sys.stdin.fileno(), 1):  # not through its buffer, whose lock would be held at our end
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _serve_doors(plan: Plan) -> int:
    keep: list[object] = []  # what lives as long as the process

    async def open_engine(spec: EngineSpec) -> Engine:
        if plan.kind is Kind.REAL:
            engine = await open_vllm(spec, allow_untested=ALLOW_UNTESTED_VLLM.value(None, os.environ))
            commands = await real_commands(engine, spec, keep)
        else:
            engine = await asyncio.to_thread(_scripted_engine, spec)
            commands = engine_commands(engine, spec)
        keep.append(await open_control(Path(plan.control), commands))
        return engine

    return serve(plan.arguments(), open_engine=open_engine)


def _scripted_engine(spec: EngineSpec) -> Engine:
    client = _scripted_client(spec)
    from vllm_engine.oracle.serving import scripted_engine

    engine: Engine = scripted_engine(client, spec)
    return engine


def _scripted_client(spec: EngineSpec) -> Any:
    from vllm_engine.environment import start_environment
    from vllm_engine.installation import find_installation

    os.environ.update(start_environment(find_installation(), os.environ, eager=True))
    from vllm_engine.oracle.paced import paced_client

    return paced_client(spec)


def _serve_http(plan: Plan) -> int:
    spec = plan.spec()
    client = _scripted_client(spec)
    from vllm_engine.oracle.http import HOST, run_alone

    keep: list[object] = []

    async def started(port: int) -> None:
        keep.append(await open_control(Path(plan.control), scripted_commands(client)))
        ready = Path(plan.ready)
        partial = ready.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode({"http": f"{HOST}:{port}"}))
        partial.replace(ready)

    run_alone(client, spec, started)
    return 0


if __name__ == "__main__":
    sys.exit(main())
