# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.real_engine.backend import RealBackend, real_backend


@pytest.hookimpl(tryfirst=True)  # before the tests are put into an order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs the engine; a cold start on two busy cores takes minutes, not the usual seconds."""
    for item in items:
        if "real_engine" in item.nodeid:
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.timeout(600))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def backend() -> AsyncIterator[RealBackend]:
    from vllm_nnrp.models.memorised import build_memorised_model

    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; several engines may run on one machine
    async with real_backend(build_memorised_model()) as opened:
        yield opened
