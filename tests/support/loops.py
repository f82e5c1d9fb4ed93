# SPDX-License-Identifier: MIT
"""One event loop for all tests that share an engine: up to 0.22 vLLM's renderer belongs to the first it is used in."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
from pytest_asyncio import is_async_test

SESSION = pytest.mark.asyncio(loop_scope="session")


def share_loop_factory(metafunc: pytest.Metafunc) -> None:
    """The same for where pytest-asyncio chooses the loop, before there are items: call it first of all."""
    if iscoroutinefunction(metafunc.function):
        metafunc.definition.add_marker(SESSION, append=False)


def share_loop(items: Iterable[pytest.Item], folder: Path) -> None:
    """Run the asynchronous tests below `folder` in the session's loop."""
    for item in items:
        if is_async_test(item) and item.path.is_relative_to(folder):
            item.add_marker(SESSION, append=False)
