# SPDX-License-Identifier: MIT
"""Which adapter a request is generated with, by the model it names."""

from __future__ import annotations

import pytest

from tests.parity.runs import Bench
from tests.vllm_engine.scripted import chat, token_ids
from vllm_engine import Adapter, EngineSpec

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PIRATE, POET = Adapter("pirate", "/a/pirate"), Adapter("poet", "/a/poet")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("model", "adapter"), [("tiny", "pirate"), ("pirate", "pirate"), ("poet", "poet"), ("base", None)]
)
async def test_the_name_chooses_the_adapter(bench: Bench, model: str, adapter: str | None) -> None:
    from vllm_engine.oracle.serving import scripted_engine

    engine = scripted_engine(bench.client, EngineSpec("", ("tiny",), adapters=(PIRATE, POET)))
    bench.play(token_ids(bench, "Hello."), (1,))
    async for _ in engine.generate(chat(model=model)):
        pass
    given = bench.client.generate_calls[-1]["lora_request"]
    assert (given and (given.lora_name, given.lora_path)) == (adapter and (adapter, f"/a/{adapter}"))


@pytest.mark.asyncio
async def test_without_adapters_there_is_none(bench: Bench) -> None:
    bench.play(token_ids(bench, "Hello."), (1,))
    async for _ in bench.engine.generate(chat()):
        pass
    assert bench.client.generate_calls[-1]["lora_request"] is None
