# SPDX-License-Identifier: MIT
"""Families whose calls are JSON objects with a name and arguments."""

from __future__ import annotations

from functools import partial

from tests.parity.corpus.forms import GRANITE_THOUGHT, PARIS, Form, Said, cases, json_call, json_text, listed, repeated
from tests.parity.entries import LONG, Call, Expected, Family, Raw

TOOL_CALL = ("<tool_call>", "</tool_call>")
TO_PARIS = Expected(calls=(Call("get_weather", {"city": "Paris", "days": 2}),), finish="tool_calls")

# NousResearch Hermes 2 Pro and Qwen 2.5 / 3: <tool_call>\n{"name": …, "arguments": …}\n</tool_call>, one per call.
HERMES = Form(repeated("<tool_call>\n", "\n</tool_call>"), thought=("<think>\n", "\n</think>\n\n"))
HERMES_PARIS = HERMES.calls(PARIS)
UNUSUAL = {
    "long arguments": Raw(HERMES.calls(("search", {"query": LONG}))),
    "call without its end": Raw(HERMES_PARIS.removesuffix("\n</tool_call>")),
    "call with a brace too many": Raw(HERMES_PARIS.replace("}}\n", "}}}\n")),
    "arguments before the name": Raw(
        f'<tool_call>\n{{"arguments": {json_text(PARIS[1])}, "name": "get_weather"}}\n</tool_call>'
    ),
}
# Granite 4 speaks the same calls, and granite's own reasoning phrases.
GRANITE4 = Form(HERMES.calls, thought=GRANITE_THOUGHT)

# Llama 3.1+: the whole answer is {"name": …, "parameters": …}, several separated by "; ", perhaps after <|python_tag|>.
LLAMA = Form(repeated("", "", partial(json_call, arguments="parameters"), separator="; "))
LLAMA_CASES = {
    **cases(LLAMA, before=False, own_markup=True),
    "one call after the tag": Raw(f"<|python_tag|>{LLAMA.calls(PARIS)}", expected=TO_PARIS),
    # JSON that is no call is an answer (LocalAI L9988: an object with a "name" is not always a call)
    "JSON answer": Raw('{"person": "Ada", "born": 1815}', expected=Expected(content='{"person": "Ada", "born": 1815}')),
}

# Phi-4-mini: functools[{"name": …, "arguments": …}, …]
PHI4 = Form(listed("functools", ""))
PHI4_CASES = {
    **cases(PHI4),
    "markup cut by max_tokens": Raw("Well func", cut=True, expected=Expected(content="Well func", finish="length")),
}

# xLAM: the whole answer is a JSON array of calls, or one in a ```json block.
XLAM = Form(listed("", ""))
XLAM_CASES = {
    **cases(XLAM, before=False),
    "text before a call": Raw(f"Let me look.\n```json\n{XLAM.calls(PARIS)}\n```"),
}


# Mistral from v11 on: text[TOOL_CALLS]NAME[ARGS]{…}[TOOL_CALLS]NAME[ARGS]{…}; from v13 on [THINK]…[/THINK] before it
def v13_call(call: Said) -> str:
    return f"{call[0]}[ARGS]{json_text(call[1])}"


FAMILIES = (
    Family(
        "hermes",
        "hermes",
        "qwen3",
        cases(HERMES, after=True, own_markup=True) | UNUSUAL,
        markup_tokens=("<think>", "</think>", *TOOL_CALL),
        generation_prompt="{% if not thinking %}<think>\n\n</think>\n\n{% endif %}",
    ),
    Family(
        "granite4",
        "granite4",
        "granite",
        cases(GRANITE4, after=True) | UNUSUAL,
        markup_tokens=TOOL_CALL,
    ),
    *(  # one class under two names
        Family(name, name, None, LLAMA_CASES, special_tokens=("<|python_tag|>",))
        for name in ("llama3_json", "llama4_json")
    ),
    Family("phi4_mini_json", "phi4_mini_json", None, PHI4_CASES),
    Family("xlam", "xlam", None, XLAM_CASES),
    # Mistral before v11: text[TOOL_CALLS][{"name": …, "arguments": …}, …]
    Family("mistral", "mistral", None, cases(Form(listed("[TOOL_CALLS]", ""))), tokenizer="tekken"),
    Family(
        "mistral_v13",
        "mistral",
        "mistral",
        cases(
            Form(repeated("[TOOL_CALLS]", "", v13_call, separator=""), thought=("[THINK]", "[/THINK]")),
            own_markup=True,
        ),
        tokenizer="tekken v13",
    ),
)
