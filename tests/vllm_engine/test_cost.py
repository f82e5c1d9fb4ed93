# SPDX-License-Identifier: MIT
"""What a token costs does not depend on how many came before it: calls made and bytes allocated, not time."""

from __future__ import annotations

import statistics
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chatdelta import EngineDelta, ResponseHead, StreamMapper
from nnrp_openai.encoding import encode_event
from tests.parity.corpus.versions import installed
from tests.parity.runs import Bench
from tests.vllm_engine.scripted import chat, token_ids
from tests.vllm_engine.versions import IS_NEWEST
from vllm_engine.calls import Said

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.asyncio]

TOKENS = 6000
WINDOW = 500
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
WORDS = "A line of text with nothing in it. "
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}

# What the model says before and after very many words.
ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("", {}),
    "text beside tools": ("", {"tools": [TOOL]}),
    "reasoning": ("<think>", {"tools": [TOOL], **THINKING}),
    "arguments": ('<tool_call>\n{"name": "f", "arguments": {"x": "', {"tools": [TOOL]}),
}

# Before 0.26 the native reasoning parsers are given all the text so far, with each token.
BOUNDED = [kind for kind in ANSWERS if IS_NEWEST or kind != "reasoning"]


@dataclass(frozen=True)
class Cost:
    """Of one token."""

    calls: int  # of Python functions
    peak_bytes: int  # allocated at once beyond what was there before


def measured(step: Callable[[], None]) -> Cost:
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return Cost(calls, tracemalloc.get_traced_memory()[1] - before)


def as_delta(said: Said) -> EngineDelta:
    return EngineDelta(content=said.content, reasoning=said.reasoning, tool_calls=said.tool_calls)


def costs(parser: Any, mapper: StreamMapper, pieces: list[tuple[str, int]]) -> Iterator[Cost]:
    """Of each token, from the parsers to the bytes of its events."""

    def step(text: str, token_id: int) -> None:
        for event in mapper.feed(as_delta(parser.feed(text, token_id, finished=False))):
            encode_event(event)

    for text, token_id in pieces:
        yield measured(lambda text=text, token_id=token_id: step(text, token_id))  # type: ignore[misc]


@pytest.mark.parametrize("kind", BOUNDED)
async def test_a_token_costs_the_same_however_many_came_before(bench: Bench, kind: str) -> None:
    begin, body = ANSWERS[kind]
    rendered = await bench.engine._runtime.render(chat(**body))
    ids = token_ids(bench, begin + WORDS * TOKENS, cut=True)[:TOKENS]
    pieces = [(bench.tokenizer.decode([token_id]), token_id) for token_id in ids]
    mapper = StreamMapper(ResponseHead("r", 0, "tiny"))
    tracemalloc.start()
    try:
        spent = list(costs(rendered.parsers[0], mapper, pieces))
    finally:
        tracemalloc.stop()
    early, late = spent[WINDOW : 2 * WINDOW], spent[-WINDOW:]
    for name in ("calls", "peak_bytes"):
        first, last = (statistics.mean(getattr(cost, name) for cost in window) for window in (early, late))
        assert last < 1.5 * first + 100, f"{name} of a token grew from {first:.0f} to {last:.0f}"


async def test_the_template_and_the_tokenizer_run_beside_the_event_loop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import PreTrainedTokenizerBase

    threads: dict[str, set[int]] = {}

    def note(name: str) -> None:
        native = getattr(PreTrainedTokenizerBase, name)

        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            threads.setdefault(name, set()).add(threading.get_ident())
            return native(self, *args, **kwargs)

        monkeypatch.setattr(PreTrainedTokenizerBase, name, noted)

    note("apply_chat_template")
    note("__call__")
    assert await bench.engine.tokenize(chat())
    assert set(threads) == {"apply_chat_template", "__call__"}
    on_loop = any(threading.get_ident() in used for used in threads.values())
    assert on_loop == ("templates-on-loop" in {gap.name for gap in installed().gaps})
