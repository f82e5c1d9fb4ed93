# SPDX-License-Identifier: MIT
"""gpt-oss: messages on channels, read by token id. The prompt ends with <|start|>assistant."""

from __future__ import annotations

from tests.parity.corpus.forms import PARIS, Form, Said, cases, enclosed, json_text
from tests.parity.entries import BARE_JSON, Family, Raw
from tests.parity.npm import GPT_OSS, missing

NEXT = "<|end|><|start|>assistant"


def call(said: Said) -> str:
    return f"<|channel|>commentary to=functions.{said[0]} <|constrain|>json<|message|>{json_text(said[1])}"


HARMONY = Form(
    enclosed("", "<|call|>", call, separator=NEXT),
    text=("<|channel|>final<|message|>", ""),
    thought=("<|channel|>analysis<|message|>", ""),
    between=NEXT,
)
FAMILIES = (
    Family(
        "openai",
        "openai",
        "openai_gptoss",
        {case: raw for case, raw in cases(HARMONY).items() if case not in BARE_JSON}
        | {
            # what is said on the way to a call comes on the calls' channel
            "text before a call": Raw(
                HARMONY.answer("<|channel|>commentary<|message|>Let me look.", HARMONY.calls(PARIS))
            ),
        },
        tokenizer="o200k",
        config={"model_type": "gpt_oss", "vocab_size": 201088, "head_dim": 16},
        needs=lambda: missing(GPT_OSS),
    ),
)
