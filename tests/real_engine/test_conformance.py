# SPDX-License-Identifier: MIT
"""Every conformance case that we claim, over the wire against the session's real engine, on three transports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_engine.backend import MODEL, RealBackend
from tests.vllm_nnrp_conformance.serving import RECIPES, TRANSPORTS, not_passed, run_cases, served
from vllm_nnrp.conformance.faults import FaultEngine

pytestmark = pytest.mark.asyncio(loop_scope="session")
CASE_S = 120.0  # two busy cores


class BorrowedEngine(FaultEngine):
    """The session's engine, which its own fixture stops."""

    async def stop(self) -> None: ...


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_claimed_case_passes(backend: RealBackend, transport: str, tmp_path: Path) -> None:
    async with served(transport, tmp_path, BorrowedEngine(backend.host.engine())) as target:
        verdicts = await run_cases(target, MODEL, timeout_s=CASE_S)
    assert not_passed(verdicts) == {}
    assert len(verdicts) == len(RECIPES)
    await backend.counts.idle()
