# SPDX-License-Identifier: MIT
"""Load, answer, free, again and again in one process: nothing of an engine stays behind. Longer in `make soak`."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.real_engine.process import HEALTH, Backend, backend_process
from tests.support.process import all_gone
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio
WARM_UP = 1  # the first engine brings vLLM, torch and Python's resource tracker with it, for good
MIB_PER_CYCLE = 4.0
HELPER_THREADS = min(32, (os.cpu_count() or 1) + 4)  # asyncio.to_thread's, which come when they are first needed
GONE_S = 10.0


@dataclass(frozen=True)
class Held:
    """What the process has when no model is loaded."""

    children: int
    open_files: tuple[str, ...]  # sorted, sockets and pipes without their numbers: a leak has a name
    temporary_files: int
    threads: int
    anonymous_mib: float

    @classmethod
    def by(cls, backend: Backend, temporary: Path) -> Held:
        process = Path("/proc") / str(backend.run.process.pid)
        lines = (process / "status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        return cls(
            children=len(backend.run.children()),
            open_files=tuple(sorted(_kind(file) for file in (process / "fd").iterdir())),
            temporary_files=len(list(temporary.rglob("*"))),
            threads=int(status["Threads"]),
            anonymous_mib=int(status["RssAnon"].split()[0]) / 1024,
        )

    def __str__(self) -> str:
        """The figures of it, in a line."""
        files = f"{len(self.open_files)} open files"
        others = f"{self.children} children, {self.threads} threads, {self.temporary_files} temporary files"
        return f"{files}, {others}, {self.anonymous_mib:.1f} MiB"

    def more_files(self, than: Held) -> dict[str, int]:
        return dict(Counter(self.open_files) - Counter(than.open_files))

    def is_as_small(self, than: Held) -> bool:
        small = self.children <= than.children and self.temporary_files <= than.temporary_files
        return small and not self.more_files(than)


def _kind(file: Path) -> str:
    """What an open file is: "socket", "pipe", "anon_inode" with its kind, a path; "" when it was closed meanwhile."""
    try:
        target = os.readlink(file)
    except FileNotFoundError:
        return ""
    return target.partition(":[")[0] if target.startswith(("socket:", "pipe:")) else target


async def cycle(backend: Backend, temporary: Path, first: Held | None) -> Held:
    """One life of an engine; what is there after it, and in the folder of temporary files.

    Some of an engine's sockets close behind the answer to Free: there is time for that, until there is no more than
    there was after the `first` of the warm cycles.
    """
    assert await backend.state() == pb.StatusResponse.UNINITIALIZED
    result = await backend.load()
    assert result.success, result.message
    assert await backend.state() == pb.StatusResponse.READY
    cores = backend.engine_cores()
    assert cores
    for _ in range(3):
        await backend.answers()
    assert (await backend.stub.Free(HEALTH)).success
    await until(lambda: all_gone(cores), timeout_s=GONE_S, every_s=0.05)
    assert await backend.state() == pb.StatusResponse.UNINITIALIZED
    if first is not None:
        with suppress(TimeoutError):  # the caller compares them, and says what is more
            await until(lambda: Held.by(backend, temporary).is_as_small(first), timeout_s=GONE_S, every_s=0.1)
    return Held.by(backend, temporary)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_nothing_stays_of_an_engine_that_was_freed(tmp_path: Path, figure: Figure, is_soak: bool) -> None:
    cycles = 20 if is_soak else 3
    # Not tmp_path: the path of a socket must be short.
    with TemporaryDirectory() as temporary:
        async with backend_process(tmp_path, TMPDIR=temporary) as backend:
            held: list[Held] = []
            for number in range(cycles):
                first = held[WARM_UP] if number > WARM_UP else None
                held.append(await cycle(backend, Path(temporary), first))
    for number, after in enumerate(held, start=1):
        figure(f"after cycle {number} of {cycles}: {after}")
    warm = held[WARM_UP:]
    for after in warm[1:]:
        assert after.is_as_small(warm[0]), f"{after} after {warm[0]}, more: {after.more_files(warm[0])}"
    threads = [after.threads for after in warm]
    assert max(threads) - min(threads) <= HELPER_THREADS
    memory = [after.anonymous_mib for after in warm]
    slope = statistics.linear_regression(range(len(memory)), memory).slope
    figure(f"memory grows by {slope:.2f} MiB a cycle after the first")
    assert slope < MIB_PER_CYCLE
