# SPDX-License-Identifier: MIT
"""gpt-oss: messages on channels, read by token id. The prompt ends with <|start|>assistant."""

from __future__ import annotations

from tests.parity.entries import STOP, Family, Raw
from tests.parity.npm import GPT_OSS, missing

TEXT = "Paris, naïvely: 日本語 🎉 {braces}, 1 < 2 > 0 and [x]."
QUERY = r'"say \"hi\" {a: [1]} 日本語 🎉"'
SEARCH = f'{{"query": {QUERY}, "limit": 5, "filters": {{"tags": ["x", "y}}"], "deep": {{"k": null}}}}}}'
FINAL = "<|channel|>final<|message|>"
ANALYSIS = "<|channel|>analysis<|message|>"
NEXT = "<|end|><|start|>assistant"


def call(name: str, arguments: str) -> str:
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}"


PARIS = call("get_weather", '{"city": "Paris", "days": 2}')
TOKYO = call("get_weather", '{"city": "Tokyo"}')
HARMONY = {
    "text only": Raw(FINAL + TEXT),
    "reasoning": Raw(f"{ANALYSIS}Two and two.\nThat is four.{NEXT}{FINAL}2 + 2 = 4."),
    "one call": Raw(f"{PARIS}<|call|>"),
    "parallel calls": Raw(f"{PARIS}{NEXT}{TOKYO}<|call|>"),
    "call without arguments": Raw(f"{call('get_time', '{}')}<|call|>"),
    "unicode and braces": Raw(f"{call('search', SEARCH)}<|call|>"),
    "call after reasoning": Raw(f"{ANALYSIS}I need the weather.{NEXT}{PARIS}<|call|>"),
    "text before a call": Raw(f"<|channel|>commentary<|message|>Let me look.{NEXT}{PARIS}<|call|>"),
    "call cut by max_tokens": Raw(call("get_weather", '{"city": "Par'), cut=True),
    "second call cut": Raw(PARIS + NEXT + call("get_weather", '{"city": "Tok'), cut=True),
    "markup cut by max_tokens": Raw(f"{FINAL}Well <", cut=True),
    "reasoning cut by max_tokens": Raw(f"{ANALYSIS}I am still thin", cut=True),
    "stop string in the text": Raw(f"{FINAL}First, second, ENOUGH third", stop=STOP),
    "stop string after reasoning": Raw(f"{ANALYSIS}Two and two.{NEXT}{FINAL}It is 4 ENOUGH or so", stop=STOP),
    "stop string in a call": Raw(call("get_weather", '{"city": "ENOUGH"}') + "<|call|>", stop=STOP),
    "stop string that never comes": Raw(f"{ANALYSIS}I need the weather.{NEXT}{PARIS}{NEXT}{TOKYO}<|call|>", stop=STOP),
    "tool_choice none": Raw(f"{FINAL}No call.", body={"tool_choice": "none"}),
    "one call at most": Raw(f"{PARIS}{NEXT}{TOKYO}<|call|>", body={"parallel_tool_calls": False}),
}
FAMILIES = (
    Family(
        "openai",
        "openai",
        "openai_gptoss",
        HARMONY,
        tokenizer="o200k",
        config={"model_type": "gpt_oss", "vocab_size": 201088, "head_dim": 16},
        needs=lambda: missing(GPT_OSS),
    ),
)
