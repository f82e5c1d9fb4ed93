# SPDX-License-Identifier: MIT
"""Figures: what tests measured, printed together at the end. A figure is never an assertion. And `--soak`.

Workers (`-n 2 --dist loadgroup`) take whole files, the slow ones first; all that share the session's engine go to one.

`pytest -k L10256` or `-k fault_20` finds the tests that docs/known-reports.md has for that report.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.reports import ROOT, names_by_test

FIGURES = "figures"
_FIGURES = pytest.StashKey[list[str]]()
Figure = Callable[[str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="let the tests marked `soak` run for long")


@pytest.fixture(scope="session")
def is_soak(request: pytest.FixtureRequest) -> bool:
    """Whether a test marked `soak` shall take its time."""
    return bool(request.config.getoption("--soak"))


def pytest_configure(config: pytest.Config) -> None:
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # gw0, gw1, …
        # Two engines that compute on the same cores wait for each other's threads most of the time.
        cpus = sorted(os.sched_getaffinity(0))
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", str(cpus[int(worker[2:]) % len(cpus)]))
    config.stash[_FIGURES] = []


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


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker is done: its figures are ours."""
    node.config.stash[_FIGURES].extend(getattr(node, "workeroutput", {}).get(FIGURES, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if figures := config.stash[_FIGURES]:
        terminalreporter.section(FIGURES)
        for line in figures:
            terminalreporter.write_line(line)
