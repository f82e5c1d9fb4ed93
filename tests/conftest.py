# SPDX-License-Identifier: MIT
"""Figures: what tests measured, printed together at the end. A figure is never an assertion."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_FIGURES = pytest.StashKey[list[str]]()
Figure = Callable[[str], None]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = []


@pytest.fixture(scope="session")
def figure(request: pytest.FixtureRequest) -> Figure:
    """Call it with a line for the summary."""
    return request.config.stash[_FIGURES].append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if figures := config.stash[_FIGURES]:
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(line)
