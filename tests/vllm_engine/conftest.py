# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.parity.corpus import FAMILIES
from tests.parity.runs import Bench
from tests.support.loops import share_loop, share_loop_factory


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    share_loop_factory(metafunc)


@pytest.hookimpl(tryfirst=True)  # before the tests are put into an order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    share_loop(items, Path(__file__).parent)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """`VllmEngine` on vLLM's own output path with hermes and qwen3, and a model that says what it is told to."""
    from vllm_engine.environment import start_environment
    from vllm_engine.installation import find_installation

    os.environ.update(start_environment(find_installation(), os.environ, eager=True))
    (hermes,) = (family for family in FAMILIES if family.name == "hermes")
    return Bench(hermes, tmp_path_factory.mktemp("scripted"))
