# SPDX-License-Identifier: MIT
"""The scripted client: vLLM's own output path under scripted tokens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatdelta import ChatRequest, FinishReason, Origin, ResponseHead, StreamMapper
from tests.parity.conftest import Benches
from tests.parity.corpus import FAMILIES
from tests.parity.runs import Bench

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.asyncio]
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Go."}]}
THOUGHT_OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture
def bench(benches: Benches) -> Bench:
    return benches.of(next(family for family in FAMILIES if family.name == "hermes"))


def script(bench: Bench, *texts: str, sizes: tuple[int, ...] = (1,)) -> None:
    from vllm_engine.oracle.client import Playback

    tokenizer = bench.tokenizer
    choices = [(*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id) for text in texts]
    bench.client.playback = Playback(choices, sizes)


async def raw_outputs(bench: Bench, **params: Any) -> list[Any]:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    kind = RequestOutputKind.FINAL_ONLY if params.pop("final", False) else RequestOutputKind.DELTA
    sampling = SamplingParams(max_tokens=200, output_kind=kind, **params)
    prompt = {"type": "token", "prompt_token_ids": [1, 2, 3]}
    return [output async for output in bench.client.generate(prompt, sampling, "r")]


async def test_deltas_join_to_the_final_output(bench: Bench) -> None:
    script(bench, "Ünïcode 🎉 text", sizes=(1, 3, 2))
    deltas = await raw_outputs(bench)
    script(bench, "Ünïcode 🎉 text")
    (final,) = await raw_outputs(bench, final=True)
    assert [len(delta.outputs[0].token_ids) for delta in deltas][:3] == [1, 3, 2]
    assert "".join(delta.outputs[0].text for delta in deltas) == final.outputs[0].text == "Ünïcode 🎉 text"
    assert (final.outputs[0].finish_reason, final.outputs[0].stop_reason, final.finished) == ("stop", None, True)


async def test_a_stop_string_is_held_back_and_never_said(bench: Bench) -> None:
    script(bench, "one ENOUGH two")
    deltas = await raw_outputs(bench, stop=["ENOUGH"])
    assert "".join(delta.outputs[0].text for delta in deltas) == "one "
    assert (deltas[-1].outputs[0].finish_reason, deltas[-1].outputs[0].stop_reason) == ("stop", "ENOUGH")


async def test_the_token_limit_ends_an_answer(bench: Bench) -> None:
    script(bench, "one two three four")
    deltas = [output async for output in bench.client.generate(*_limited(3))]
    assert sum(len(delta.outputs[0].token_ids) for delta in deltas) == 3
    assert deltas[-1].outputs[0].finish_reason == "length"


def _limited(limit: int) -> tuple[Any, Any, str]:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    sampling = SamplingParams(max_tokens=limit, output_kind=RequestOutputKind.DELTA)
    return {"type": "token", "prompt_token_ids": [1]}, sampling, "r"


async def test_several_choices_keep_their_own_parsers(bench: Bench) -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
    script(bench, call % "Paris", call % "Tokyo", "Text.", sizes=(2,))
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    body = {**BODY, **THOUGHT_OFF, "n": 3, "tools": [tool]}
    mapper = StreamMapper(ResponseHead("r", 0, "tiny"), n=3)
    async for delta in bench.engine.generate(ChatRequest("n3", body, Origin(door="test"))):
        mapper.feed(delta)
    *_, terminal = mapper.complete()
    choices = terminal.body["choices"]  # type: ignore[union-attr]
    arguments = [
        [call["function"]["arguments"] for call in choice["message"].get("tool_calls", ())] for choice in choices
    ]
    assert arguments == [['{"city": "Paris"}'], ['{"city": "Tokyo"}'], []]
    assert [choice["finish_reason"] for choice in choices] == ["tool_calls", "tool_calls", "stop"]
    assert choices[2]["message"]["content"] == "Text."


async def test_an_abort_ends_the_stream(bench: Bench) -> None:
    script(bench, "one two three four five six seven eight")
    reasons = []
    async for delta in bench.engine.generate(ChatRequest("gone", {**BODY, **THOUGHT_OFF}, Origin(door="test"))):
        reasons.append(delta.finish_reason)
        if len(reasons) == 1:
            assert await bench.engine.abort("gone")
        await asyncio.sleep(0)
    assert reasons[-1] is FinishReason.ABORT
    assert not bench.client.output_processor.request_states
