# SPDX-License-Identifier: MIT
"""The whole process with a scripted engine, on every transport, under a load that is checked to the last event."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Figure
from tests.nnrp_openai.fake_carrier import submit_packet
from tests.soak.connections import Target
from tests.soak.length import SEED, load_seconds
from tests.soak.load import Load
from tests.soak.operations import event_of
from tests.soak.questions import MODEL, scripted_question
from tests.soak.scripted_backend import CENSUS
from tests.support import certificates
from tests.support import wire_frames as w
from tests.support.process import START_S, Run, started
from tests.support.waiting import until

SCHEMES = ("nnrp", "nnrps", "ws", "wss", "quic")
WIDTH, DEPTH = 12, 4
SAMPLES = 60
WARM_UP = 0.3  # of the time
MAX_GROWTH_MIB = 4.0  # over the whole time after the warm-up
IDLE_S = 5.0


@asynccontextmanager
async def backend(folder: Path) -> AsyncIterator[tuple[Run, list[Target]]]:
    certificate, key = certificates.server().save(folder, "server", certificates.intermediate())
    urls = [*(f"{scheme}://127.0.0.1:0" for scheme in SCHEMES), f"unix://{folder / 'nnrp.sock'}"]
    arguments = (f"--nnrp-cert={certificate}", f"--nnrp-key={key}", "--addr=127.0.0.1:0", f"--model={MODEL}")
    doors = [f"--nnrp={url}" for url in urls]
    python = ("-m", "tests.soak.scripted_backend")
    async with started(folder, *arguments, *doors, python=python, log=folder / "log") as run:
        ready = await run.ready()
        yield run, [Target.of(url) for url in ready["nnrp_all"]]


@dataclass(frozen=True)
class Held:
    """What the process has at a moment."""

    at_s: float
    anonymous_mib: float
    open_files: int

    @classmethod
    def by(cls, pid: int) -> Held:
        process = Path("/proc") / str(pid)
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        mib = int(status["RssAnon"].split()[0]) / 1024
        return cls(time.monotonic(), mib, len(list((process / "fd").iterdir())))


async def watch(pid: int, seconds: float, held: list[Held]) -> None:
    for _ in range(SAMPLES):
        await asyncio.sleep(seconds / SAMPLES)
        held.append(Held.by(pid))


async def census(target: Target) -> tuple[int, int]:
    """Requests that run in the engine, and those it has had in all."""
    body: Any = {"model": MODEL, "messages": [{"role": "user", "content": CENSUS}]}
    envelope = {"schema_version": "openai-compatible/1", "operation": "chat.completions.create", "body": body}
    peer = await (await target.connect()).opened()
    peer.send(w.submit(1, 1, submit_packet(json.dumps(envelope).encode()).body))
    message = event_of(await peer.reply())["body"]["choices"][0]["message"]
    await peer.close()
    running, served = message["content"].split()
    return int(running), int(served)


async def requests_of_an_idle_engine(target: Target) -> int:
    """How many there were, as soon as none runs."""
    async with asyncio.timeout(IDLE_S):
        while True:
            running, served = await census(target)
            if not running:
                return served
            await asyncio.sleep(0.05)


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
@pytest.mark.asyncio
async def test_nothing_is_lost_doubled_or_misordered(tmp_path: Path, figure: Figure, is_soak: bool) -> None:
    seconds = load_seconds(is_soak=is_soak)
    held: list[Held] = []
    async with backend(tmp_path) as (run, targets):
        for target in targets:  # what a loop opens once, with its first connection, is no leak
            await requests_of_an_idle_engine(target)
        before = Held.by(run.process.pid)
        load = Load(targets, questions(), SEED, WIDTH, DEPTH)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch(run.process.pid, seconds, held))
            await load.run(seconds)

        served = await requests_of_an_idle_engine(targets[0])
        await until(lambda: Held.by(run.process.pid).open_files <= before.open_files, timeout_s=IDLE_S, every_s=0.05)
        run.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(run.process.wait(), START_S) == 0

    figure(f"scripted engine, {seconds:.0f} s, seed {SEED}: idle in the end after {served} requests")
    for line in load.totals.lines(seconds):
        figure(f"scripted engine: {line}")
    warm = held[int(WARM_UP * len(held)) :]
    slope = statistics.linear_regression([each.at_s for each in warm], [each.anonymous_mib for each in warm]).slope
    growth_mib = slope * (warm[-1].at_s - warm[0].at_s)
    figure(
        f"scripted engine: {before.anonymous_mib:.1f} MiB before, {warm[0].anonymous_mib:.1f} warm, "
        f"{warm[-1].anonymous_mib:.1f} in the end; slope {slope * 60:.2f} MiB a minute"
    )
    assert growth_mib < MAX_GROWTH_MIB
    assert load.totals.outcomes["completed"] > load.totals.operations / 2


def questions() -> Any:
    """Each a new one."""
    number = 0

    def ask(chance: random.Random) -> Any:
        nonlocal number
        number += 1
        return scripted_question(chance, number)

    return ask
