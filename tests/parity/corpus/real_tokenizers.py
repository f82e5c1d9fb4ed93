# SPDX-License-Identifier: MIT
"""Families once more on a real tokenizer and chat template, where npm can fetch them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.parity.corpus import json_calls, marker_calls, python_calls
from tests.parity.corpus.forms import TEXT, Form, listed, reasoned_calls, reasoning_cases
from tests.parity.entries import Family, Raw
from tests.parity.npm import DEEPSEEK_V3, GEMMA3, LLAMA3, QWEN3, missing

BY_NAME = {family.name: family for families in (json_calls, marker_calls, python_calls) for family in families.FAMILIES}


def on(family: Family, tokenizer: str, package: str, raws: Mapping[str, Raw] | None = None) -> Family:
    return replace(
        family,
        name=f"{family.name} on {tokenizer}",
        tokenizer=tokenizer,
        raws=family.raws if raws is None else raws,
        needs=lambda: missing(package),
    )


def unthinking(family: Family) -> dict[str, Raw]:
    return {case: raw for case, raw in family.raws.items() if not raw.thinking}


# Hunyuan A13B's reasoning parser looks for token ids, which are the same in Llama 3's vocabulary.
HUNYUAN = Form(
    listed("<tool_calls>", "</tool_calls>\n</answer>"),
    text=("", "\n</answer>"),
    thought=("<think>\n", "\n</think>\n<answer>\n"),
    quiet="<think>\n\n</think>\n<answer>\n",
)
FAMILIES = (
    on(BY_NAME["hermes"], "qwen3", QWEN3),
    on(BY_NAME["llama3_json"], "llama3_1", LLAMA3),
    # V3 itself does not think: its vocabulary has no think tags
    on(BY_NAME["deepseek_v3"], "deepseek_v3", DEEPSEEK_V3, unthinking(BY_NAME["deepseek_v3"])),
    # Gemma 3 has no calls of its own; vLLM's template for it asks for Python
    on(BY_NAME["pythonic"], "gemma3", GEMMA3),
    on(
        Family(
            "hunyuan_a13b",
            "hunyuan_a13b",
            "hunyuan_a13b",
            {
                "text only": Raw(HUNYUAN.quiet + HUNYUAN.saying(TEXT)),
                **reasoned_calls(HUNYUAN),
                **reasoning_cases(HUNYUAN),
            },
            markup_tokens=("<think>\n", "\n</think>\n<answer>\n", "\n</answer>"),  # never cut otherwise by the model
        ),
        "llama3_1",
        LLAMA3,
    ),
)
