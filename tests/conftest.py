# SPDX-License-Identifier: MIT
"""Figures: what tests measured, printed together at the end. A figure is never an assertion. And `--soak`.

`pytest -k L10256` or `-k fault_20` finds the tests that docs/known-reports.md has for that report.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.reports import ROOT, names_by_test

_FIGURES = pytest.StashKey[list[str]]()
Figure = Callable[[str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="let the tests marked `soak` run for long")


@pytest.fixture(scope="session")
def is_soak(request: pytest.FixtureRequest) -> bool:
    """Whether a test marked `soak` shall take its time."""
    return bool(request.config.getoption("--soak"))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = []


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function):
        test = (item.path.relative_to(ROOT).as_posix(), item.originalname)
        item.extra_keyword_matches.update(names_by_test().get(test, ()))


@pytest.fixture(scope="session")
def figure(request: pytest.FixtureRequest) -> Figure:
    """Call it with a line for the summary."""
    return request.config.stash[_FIGURES].append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if figures := config.stash[_FIGURES]:
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(line)
