# SPDX-License-Identifier: MIT
"""The NNRP door in this process, around a scripted engine, and conformance cases run against it in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from chatdelta import Engine
from chatserving import EngineHost, RequestRunner
from vllm_nnrp.addresses import Address, NetworkUrl, NnrpUrl, SocketUrl
from vllm_nnrp.client.transport import NnrpTarget
from vllm_nnrp.conformance.faults import FaultEngine
from vllm_nnrp.conformance.models import Artifacts, Plan
from vllm_nnrp.conformance.plan import compile_plan, select_cases
from vllm_nnrp.conformance.recipes import MODEL_ID, load_claims, load_recipes
from vllm_nnrp.conformance.runner import run_plan
from vllm_nnrp.conformance.scripted import scripted_engine
from vllm_nnrp.conformance.verdict import Verdict
from vllm_nnrp.nnrp_door import open_nnrp
from vllm_nnrp.nnrp_settings import NnrpSettings

TOKEN = "the-token"
NOWHERE = Artifacts(results_path="results.json", evidence_dir="evidence")
CLAIMS = load_claims()
RECIPES = load_recipes()
TRANSPORTS = ("tcp", "ws", "ipc")


def plan_for(model: str) -> Plan:
    """Every case that we claim, asked of `model`."""
    return compile_plan(CLAIMS, RECIPES, NOWHERE, {MODEL_ID: model})


def url_of(transport: str, folder: Path) -> NnrpUrl:
    loopback = Address("127.0.0.1", 0)
    schemes = {"tcp": "nnrp", "ws": "ws"}
    return NetworkUrl(schemes[transport], loopback) if transport in schemes else SocketUrl(str(folder / "nnrp.sock"))


@asynccontextmanager
async def served(transport: str, folder: Path, engine: Engine | None = None) -> AsyncIterator[NnrpTarget]:
    """The door on one transport; without `engine` the scripted one of conformance runs, with its fault model."""
    host = EngineHost(drain_s=0)

    async def opened() -> Engine:
        return engine or FaultEngine(scripted_engine())

    await host.load("key", opened)
    settings = NnrpSettings((url_of(transport, folder),), token=TOKEN)
    runner = RequestRunner(host)
    door = await open_nnrp(settings.listen, host, runner, settings, required=True, max_operations=8)
    try:
        yield NnrpTarget(door.urls[0], TOKEN)
    finally:
        await host.close()
        await door.close(0)


async def run_cases(
    target: NnrpTarget, model: str, *patterns: str, timeout_s: float = 30.0, claims: Sequence[str] = ()
) -> list[Verdict]:
    """The cases that fit `patterns`, all unless given."""
    cases = select_cases(plan_for(model).cases, patterns)
    extensions = claims or [extension.name for extension in CLAIMS.extensions]
    return await asyncio.to_thread(run_plan, target, cases, extensions, timeout_s=timeout_s)


def not_passed(verdicts: Sequence[Verdict]) -> dict[str, tuple[str, ...]]:
    """Case id → what is wrong."""
    return {verdict.case.id: verdict.findings for verdict in verdicts if not verdict.is_passed}
