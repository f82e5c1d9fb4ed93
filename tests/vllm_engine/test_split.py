# SPDX-License-Identifier: MIT
"""A merged delta is cut where vLLM's own detokenizer would have ended each token's text, and says that more follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chatdelta import EngineDelta
from tests.parity.runs import Bench
from tests.vllm_engine.scripted import chat, token_ids

# Characters of several tokens, special tokens that are not said, and words.
SAYS = "Grüße 🦄🦄 an <|im_start|>日本語 <|im_start|><|im_end|> und é, the rest of it."
pytestmark = pytest.mark.asyncio
SIZES: list[Sequence[int]] = [(2,), (3,), (7,), (1000,), (1, 1, 4), (4, 1, 1), (5, 1, 1, 1, 9, 1)]


async def deltas(bench: Bench, sizes: Sequence[int], **fields: Any) -> list[EngineDelta]:
    bench.play(token_ids(bench, SAYS), sizes)
    request = chat(**fields, ignore_eos=True, chat_template_kwargs={"enable_thinking": False})
    return [delta async for delta in bench.engine.generate(request)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(
    "fields",
    [{}, {"skip_special_tokens": False}, {"stop": ["the rest"]}, {"stop": ["never"]}],
    ids=["plain", "special tokens", "stopped", "held back"],
)
async def test_every_token_has_its_own_text(bench: Bench, sizes: Sequence[int], fields: dict[str, Any]) -> None:
    single = await deltas(bench, (1,), **fields)
    merged = await deltas(bench, sizes, **fields)
    assert "".join(delta.content for delta in merged) == "".join(delta.content for delta in single)
    if "stop" not in fields:  # a text that was held back comes with whichever token it comes with
        assert [delta.content for delta in merged] == [delta.content for delta in single]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
async def test_all_but_the_last_of_a_merged_delta_say_that_more_follows(bench: Bench, sizes: Sequence[int]) -> None:
    marks = [delta.more_follows for delta in await deltas(bench, sizes)]
    expected: list[bool] = []
    every = [*sizes, *[sizes[-1]] * len(marks)]
    while len(expected) < len(marks):
        size = min(every.pop(0), len(marks) - len(expected))
        expected += [True] * (size - 1) + [False]
    assert marks == expected
