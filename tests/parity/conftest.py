# SPDX-License-Identifier: MIT
from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parity.entries import Family
from tests.parity.runs import Bench
from tests.support.loops import share_loop, share_loop_factory


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    share_loop_factory(metafunc)


@pytest.hookimpl(tryfirst=True)  # before the tests are put into an order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    share_loop(items, Path(__file__).parent)


class Benches:
    """One per family, made when first asked for; importing vLLM takes a while, so all in one process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[str, Bench] = {}

    def of(self, family: Family) -> Bench:
        if family.name not in self._made:
            self._made[family.name] = Bench(family, self._root)
        return self._made[family.name]


@pytest.fixture(scope="package")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    from vllm_engine.environment import start_environment
    from vllm_engine.installation import find_installation

    os.environ.update(start_environment(find_installation(), os.environ, eager=True))
    logging.disable(logging.ERROR)  # vLLM logs every output that its parsers cannot read
    yield Benches(tmp_path_factory.mktemp("parity"))
    logging.disable(logging.NOTSET)
