# SPDX-License-Identifier: MIT
"""Requests to an engine whose model says what it is told to."""

from __future__ import annotations

import itertools
from typing import Any

from chatdelta import ChatRequest, EngineDelta, Origin
from tests.parity.runs import Bench

_numbers = itertools.count()


def chat(**fields: Any) -> ChatRequest:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Go."}], **fields}
    return ChatRequest(f"scripted-{next(_numbers)}", body, Origin(door="test"))


def token_ids(bench: Bench, text: str, *, cut: bool = False) -> list[int]:
    """`text` as the model would generate it, with its end unless it was cut."""
    ids = list(bench.tokenizer.encode(text, add_special_tokens=False))
    return ids if cut else [*ids, bench.tokenizer.eos_token_id]


async def answered(bench: Bench, request: ChatRequest, says: str = "Hello.", *, cut: bool = False) -> list[EngineDelta]:
    bench.play(token_ids(bench, says, cut=cut), (1,))
    return [delta async for delta in bench.engine.generate(request)]
