# SPDX-License-Identifier: MIT
"""Figures: what tests measured, and how long workers had nothing left to do, printed together at the end; `--soak`.

A figure is never an assertion.

Workers (`-n 2 --dist loadgroup`) take whole files, the slow ones first; all that share the session's engine go to one.

`pytest -k L10256` or `-k fault_20` finds the tests that docs/known-reports.md has for that report.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import uvloop

from tests.support.reports import ROOT, names_by_test

FIGURES = "figures"
ENDED_S = "ended_s"  # by the clock that all processes of a machine share
_FIGURES = pytest.StashKey[list[str]]()
_ENDED_S = pytest.StashKey[dict[str, float]]()
Figure = Callable[[str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="let the tests marked `soak` run for long")


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that our process runs on; but uvloop starts processes with every signal as if nobody ignored it."""
    if item.get_closest_marker("inherits_signals"):
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def is_soak(request: pytest.FixtureRequest) -> bool:
    """Whether a test marked `soak` shall take its time."""
    return bool(request.config.getoption("--soak"))


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts a background job with Ctrl-C ignored, and its children would ignore it, too.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # gw0, gw1, …
        # Two engines that compute on the same cores wait for each other's threads most of the time, and busily. vLLM
        # reads the binding where a rank is a process of its own; else an engine has as many threads as OpenMP says.
        cpus = sorted(os.sched_getaffinity(0))
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", str(cpus[int(worker[2:]) % len(cpus)]))
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # else each engine looks the machine over and reports it
    config.stash[_FIGURES] = []
    config.stash[_ENDED_S] = {}


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("engine") is None)
    for item in items:
        asyncio_mark = item.get_closest_marker("asyncio")
        shares_engine = asyncio_mark is not None and asyncio_mark.kwargs.get("loop_scope") == "session"
        item.add_marker(pytest.mark.xdist_group("session" if shares_engine else item.path.relative_to(ROOT).as_posix()))


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function):
        test = (item.path.relative_to(ROOT).as_posix(), item.originalname)
        item.extra_keyword_matches.update(names_by_test().get(test, ()))


@pytest.fixture(scope="session")
def figure(request: pytest.FixtureRequest) -> Figure:
    """Call it with a line for the summary."""
    return request.config.stash[_FIGURES].append


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)  # only a worker has it
    if output is not None:
        output[FIGURES] = session.config.stash[_FIGURES]
        output[ENDED_S] = time.monotonic()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker is done: its figures are ours."""
    output: dict[str, Any] = getattr(node, "workeroutput", {})  # a worker that crashed has none
    node.config.stash[_FIGURES].extend(output.get(FIGURES, ()))
    if ENDED_S in output:
        node.config.stash[_ENDED_S][node.gateway.id] = output[ENDED_S]


def _idle_workers(ended_s: dict[str, float]) -> list[str]:
    """A worker's idle end is what a better order of the tests would save."""
    idle = [f"{worker} {max(ended_s.values()) - at_s:.1f} s" for worker, at_s in sorted(ended_s.items())]
    return [f"workers without work in the end: {', '.join(idle)}"] if len(idle) > 1 else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if figures := config.stash[_FIGURES] + _idle_workers(config.stash[_ENDED_S]):
        terminalreporter.section(FIGURES)
        for line in figures:
            terminalreporter.write_line(line)
