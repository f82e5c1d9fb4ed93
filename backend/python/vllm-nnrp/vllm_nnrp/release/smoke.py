# SPDX-License-Identifier: MIT
"""`vllm-nnrp smoke`: the memorised model on the installed vLLM, asked over both doors; the outcome is a record."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.table import Table

from chatdelta import BackendFailure
from vllm_engine.bindings.families import Family
from vllm_engine.bindings.probing import ALLOW_UNTESTED_FLAG, require_family
from vllm_engine.inspection import inspect_vllm
from vllm_engine.installation import Installation, find_installation
from vllm_nnrp.client.child import BackendFailed, running_backend
from vllm_nnrp.client.transport import grpc_target, nnrp_target
from vllm_nnrp.release.exchanges import Door, run_steps
from vllm_nnrp.release.records import SmokeRecord, SmokeStep, write_record
from vllm_nnrp.release.source import source_hash
from vllm_nnrp.settings_table import ALLOW_UNTESTED_VLLM

PASSED, FAILED, USAGE_ERROR, NOT_RUN = 0, 1, 2, 3
PACKAGES = ("torch", "transformers", "nnrp-py", "grpcio", "protobuf")
MODEL = "memorised"
OPTIONS = (f"served_model_name:{MODEL}", "tool_parser:hermes", "reasoning_parser:qwen3")


class NotRun(Exception):
    """There is nothing to run it on; `str()` says what is missing."""


def main(argv: Sequence[str]) -> int:
    """0: every exchange was right, 1: one was not, 3: not run, and why was said."""
    parser = argparse.ArgumentParser(
        prog="vllm-nnrp smoke",
        description="Ask the memorised model over both doors: text, reasoning, tools, a cancel.",
        allow_abbrev=False,
    )
    parser.add_argument("--gpu", action="store_true", help="only on a GPU; without one nothing is run")
    parser.add_argument("--records", type=Path, metavar="DIR", help="write the record into this folder")
    ALLOW_UNTESTED_VLLM.add_to(parser)
    args = parser.parse_args(argv)
    console = Console(highlight=False)
    try:
        allow_untested = ALLOW_UNTESTED_VLLM.value(args.allow_untested_vllm, os.environ)
    except ValueError as exc:
        print(f"smoke: {exc}", file=sys.stderr)
        return USAGE_ERROR
    try:
        record = run_smoke(gpu=args.gpu, allow_untested=allow_untested)
    except NotRun as exc:
        print(f"smoke: not run: {exc}", file=sys.stderr)
        return NOT_RUN
    except BackendFailed as exc:
        print(f"smoke: {exc}\n{exc.log.rstrip()}", file=sys.stderr)
        return FAILED
    _show(record, console)
    if args.records is not None:
        console.print(f"record: {write_record(record, args.records)}")
    return PASSED if record.passed else FAILED


def run_smoke(*, gpu: bool, allow_untested: bool = False) -> SmokeRecord:
    """Blocks for a minute or more. Raises NotRun, and BackendFailed if the backend does not start, or end well."""
    installation, family, device = _machine(gpu=gpu, allow_untested=allow_untested)
    started_s, taken_at = time.monotonic(), datetime.now(UTC)
    steps = _steps(installation, allow_untested=allow_untested)
    return SmokeRecord(
        kind="gpu" if gpu else "cpu",
        vllm=installation.version,
        distribution=installation.distribution,
        binding=family.name,
        packages={name: metadata.version(name) for name in PACKAGES},
        python=platform.python_version(),
        device=device,
        source=source_hash(),
        taken_at=taken_at.replace(microsecond=0),
        seconds=round(time.monotonic() - started_s, 1),
        steps=steps,
    )


def _machine(*, gpu: bool, allow_untested: bool) -> tuple[Installation, Family, str]:
    """The installed vLLM, the family whose binding it gets, and the name of what it runs on."""
    try:
        installation = find_installation()
        family = require_family(installation, allow_untested=allow_untested)
    except BackendFailure as exc:
        raise NotRun(str(exc)) from exc
    if not gpu:
        if not installation.is_cpu:
            raise NotRun(f"{installation.distribution} {installation.version} is for GPUs: use --gpu")
        return installation, family, f"{platform.machine()}, {len(os.sched_getaffinity(0))} CPUs"
    if installation.is_cpu:
        raise NotRun(f"{installation.distribution} {installation.version} is for CPUs, and a GPU run needs vllm")
    gpus = inspect_vllm(allow_untested=allow_untested).gpus
    if not gpus:
        raise NotRun("torch finds no GPU")
    return installation, family, gpus[0]


def _steps(installation: Installation, *, allow_untested: bool) -> list[SmokeStep]:
    from vllm_nnrp.models.memorised import build_memorised_model

    arguments = ["--model", str(build_memorised_model()), *([ALLOW_UNTESTED_FLAG] if allow_untested else ())]
    for option in (*OPTIONS, *(() if installation.is_cpu else ("--dtype:float32", "--gpu-memory-utilization:0.3"))):
        arguments.append(f"--option={option}")
    with running_backend(arguments) as child:
        doors = child.wait_ready(lambda: None)
        grpc = Door("grpc", grpc_target(doors.grpc, {}), MODEL)
        nnrp = Door("nnrp", nnrp_target(doors.nnrp, {}), MODEL)
        return [step for door in (grpc, nnrp) for step in asyncio.run(run_steps(door))]


def _show(record: SmokeRecord, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("door", "exchange", "seconds", "outcome"):
        table.add_column(heading, overflow="fold")
    for step in record.steps:
        table.add_row(step.door, step.name, f"{step.seconds:.2f}", step.detail or "right")
    console.print(table)
    wrong = sum(bool(step.detail) for step in record.steps)
    outcome = f"{wrong} of {len(record.steps)} wrong" if wrong else f"all {len(record.steps)} right"
    console.print(f"vLLM {record.vllm} on {record.device}: {outcome}, {record.seconds:.0f} s")
