# SPDX-License-Identifier: MIT
"""Families whose calls are a Python list of function calls."""

from __future__ import annotations

from tests.parity.entries import BARE_JSON, STOP, Family, Raw

TEXT = "Paris, naïvely: 日本語 🎉 {braces}, 1 < 2 > 0 and [x]."
PARIS = 'get_weather(city="Paris", days=2)'
TOKYO = 'get_weather(city="Tokyo")'
SEARCH = "search(query='say \"hi\" {a: [1]} 日本語 🎉', limit=5, filters={'tags': ['x', 'y}'], 'deep': {'k': None}})"

# Llama 3.2, ToolACE: the whole answer is [f(a=1), g(b="x")]
PYTHONIC = {
    "text only": Raw(TEXT),
    "one call": Raw(f"[{PARIS}]"),
    "parallel calls": Raw(f"[{PARIS}, {TOKYO}]"),
    "call without arguments": Raw("[get_time()]"),
    "unicode and braces": Raw(f"[{SEARCH}]"),
    "call cut by max_tokens": Raw('[get_weather(city="Par', cut=True),
    "second call cut": Raw(f'[{PARIS}, get_weather(city="Tok', cut=True),
    "markup cut by max_tokens": Raw("Well <", cut=True),
    "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
    "stop string in a call": Raw('[get_weather(city="ENOUGH")]', stop=STOP),
    "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
    "one call at most": Raw(f"[{PARIS}, {TOKYO}]", body={"parallel_tool_calls": False}),
    **BARE_JSON,
}
# Llama 4 may put the list between two special tokens.
TAGGED = {
    "one call": Raw(f"<|python_start|>[{PARIS}]<|python_end|>"),
    "parallel calls": Raw(f"<|python_start|>[{PARIS}, {TOKYO}]<|python_end|>"),
}
FAMILIES = (
    Family("pythonic", "pythonic", None, PYTHONIC),
    Family(
        "llama4_pythonic",
        "llama4_pythonic",
        None,
        {**PYTHONIC, **TAGGED},
        markup_tokens=("<|python_start|>", "<|python_end|>"),
    ),
)
