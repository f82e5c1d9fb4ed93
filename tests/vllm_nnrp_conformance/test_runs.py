# SPDX-License-Identifier: MIT
"""Every case that we claim passes over the wire, on three transports, against the scripted engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vllm_nnrp_conformance.serving import RECIPES, TRANSPORTS, not_passed, run_cases, served
from vllm_nnrp.conformance.scripted import MODEL

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_claimed_case_passes(transport: str, tmp_path: Path) -> None:
    async with served(transport, tmp_path) as target:
        verdicts = await run_cases(target, MODEL)
    assert not_passed(verdicts) == {}
    assert len(verdicts) == len(RECIPES)
