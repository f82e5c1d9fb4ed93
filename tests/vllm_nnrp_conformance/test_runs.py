# SPDX-License-Identifier: MIT
"""Every case that we claim passes over the wire, on three transports, against the scripted engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatdelta import EngineDelta, GenerationRequest
from chatdelta.testing import ScriptedEngine, Step, Wait
from tests.vllm_nnrp_conformance.serving import RECIPES, TRANSPORTS, not_passed, run_cases, served
from vllm_nnrp.conformance.exchange import _Exchange
from vllm_nnrp.conformance.scripted import MODEL, scripted_info

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_claimed_case_passes(transport: str, tmp_path: Path) -> None:
    async with served(transport, tmp_path) as target:
        verdicts = await run_cases(target, MODEL)
    assert not_passed(verdicts) == {}
    assert len(verdicts) == len(RECIPES)


async def test_partials_on_their_way_when_the_old_answer_is_superseded_are_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Event()  # to the engine's consumer: all but the newest are in the client's socket by then
    supersede = _Exchange._supersede

    def script(_request: GenerationRequest) -> Iterator[Step]:
        for text in ("one", " two", " three", " four", " five"):
            yield EngineDelta(content=text)
        written.set()
        yield Wait(asyncio.Event())

    def supersede_late(exchange: _Exchange) -> None:
        assert written.wait(10)
        supersede(exchange)

    monkeypatch.setattr(_Exchange, "_supersede", supersede_late)
    engine = ScriptedEngine(script, info=scripted_info([MODEL]))
    async with served("tcp", tmp_path, engine) as target:
        verdicts = await run_cases(target, MODEL, "*.supersede")
    assert not_passed(verdicts) == {}
    assert len(verdicts) == 1
