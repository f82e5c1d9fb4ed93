# SPDX-License-Identifier: MIT
"""Families whose calls are JSON objects with a name and arguments."""

from __future__ import annotations

from tests.parity.entries import BARE_JSON, LONG, REQUIRED, STOP, Call, Expected, Family, Raw, constrained

TEXT = "Paris, naïvely: 日本語 🎉 {braces}, 1 < 2 > 0 and [x]."
QUERY = r'"say \"hi\" {a: [1]} 日本語 🎉"'
SEARCH = f'{{"query": {QUERY}, "limit": 5, "filters": {{"tags": ["x", "y}}"], "deep": {{"k": null}}}}}}'
PARIS = '{"city": "Paris", "days": 2}'
TOKYO = '{"city": "Tokyo"}'
THINK = "<think>\n"

# NousResearch Hermes 2 Pro and Qwen 2.5 / 3: <tool_call>\n{"name": …, "arguments": …}\n</tool_call>, one per call.
HERMES_PARIS = f'<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>'
HERMES_TOKYO = f'<tool_call>\n{{"name": "get_weather", "arguments": {TOKYO}}}\n</tool_call>'
HERMES = {
    "text only": Raw(TEXT),
    "reasoning": Raw("<think>\nTwo and two.\nThat is four.\n</think>\n\n2 + 2 = 4.", thinking=True),
    "one call": Raw(HERMES_PARIS),
    "parallel calls": Raw(f"{HERMES_PARIS}\n{HERMES_TOKYO}"),
    "call without arguments": Raw('<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'),
    "unicode and braces": Raw(f'<tool_call>\n{{"name": "search", "arguments": {SEARCH}}}\n</tool_call>'),
    "call after reasoning": Raw(f"<think>\nI need the weather.\n</think>\n\n{HERMES_PARIS}", thinking=True),
    "text before a call": Raw(f"Let me look.\n{HERMES_PARIS}"),
    "text around a call": Raw(f"Let me look. {HERMES_PARIS}Done."),
    "call cut by max_tokens": Raw('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par', cut=True),
    "second call cut": Raw(
        HERMES_PARIS + '\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tok', cut=True
    ),
    "markup cut by max_tokens": Raw("Well <", cut=True),
    "reasoning without tools": Raw(
        "<think>\nTwo and two.\nThat is four.\n</think>\n\n2 + 2 = 4.", thinking=True, body={"tools": None}
    ),
    "reasoning not wanted": Raw(
        "<think>\nTwo and two.\n</think>\n\n2 + 2 = 4.", thinking=True, body={"include_reasoning": False}
    ),
    "reasoning cut by max_tokens": Raw("<think>\nI am still thin", cut=True, thinking=True),
    "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
    "stop string after reasoning": Raw(
        "<think>\nTwo and two.\n</think>\n\nIt is 4 ENOUGH or so", stop=STOP, thinking=True
    ),
    "stop string in a call": Raw(
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "ENOUGH"}}\n</tool_call>', stop=STOP
    ),
    "stop string that never comes": Raw(
        f"<think>\nI need the weather.\n</think>\n\n{HERMES_PARIS}\n{HERMES_TOKYO}", stop=STOP, thinking=True
    ),
    "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
    "one call at most": Raw(f"{HERMES_PARIS}\n{HERMES_TOKYO}", body={"parallel_tool_calls": False}),
    "long arguments": Raw(f'<tool_call>\n{{"name": "search", "arguments": {{"query": "{LONG}"}}}}\n</tool_call>'),
    "call without its end": Raw(HERMES_PARIS.removesuffix("\n</tool_call>")),
    "call with a brace too many": Raw(HERMES_PARIS.replace("}}\n", "}}}\n")),
    "arguments before the name": Raw(f'<tool_call>\n{{"arguments": {PARIS}, "name": "get_weather"}}\n</tool_call>'),
}
HERMES_CUT = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par'

# Granite 4 speaks the same calls, without line breaks being required, and granite's own reasoning phrases.
GRANITE4 = {
    **{case: raw for case, raw in HERMES.items() if not raw.thinking},
    **BARE_JSON,
    "reasoning": Raw(
        "Here is my thought process: Two and two.\nThat is four. Here is my response: 2 + 2 = 4.", thinking=True
    ),
    "call after reasoning": Raw(
        f"Here is my thought process: I need the weather. Here is my response: {HERMES_PARIS}", thinking=True
    ),
    "reasoning cut by max_tokens": Raw("Here is my thought process: I am still thin", cut=True, thinking=True),
    "stop string after reasoning": Raw(
        "Here is my thought process: Two and two. Here is my response: It is 4 ENOUGH or so", stop=STOP, thinking=True
    ),
    "stop string that never comes": Raw(
        f"Here is my thought process: I need the weather. Here is my response: {HERMES_PARIS}\n{HERMES_TOKYO}",
        stop=STOP,
        thinking=True,
    ),
}

# Llama 3.1+: the whole answer is {"name": …, "parameters": …}, several separated by "; ", perhaps after <|python_tag|>.
LLAMA_PARIS = f'{{"name": "get_weather", "parameters": {PARIS}}}'
LLAMA_TOKYO = f'{{"name": "get_weather", "parameters": {TOKYO}}}'
LLAMA3 = {
    "text only": Raw(TEXT),
    "one call": Raw(LLAMA_PARIS),
    "one call after the tag": Raw(
        f"<|python_tag|>{LLAMA_PARIS}",
        expected=Expected(calls=(Call("get_weather", {"city": "Paris", "days": 2}),), finish="tool_calls"),
    ),
    "parallel calls": Raw(f"{LLAMA_PARIS}; {LLAMA_TOKYO}"),
    "call without arguments": Raw('{"name": "get_time", "parameters": {}}'),
    "unicode and braces": Raw(f'{{"name": "search", "parameters": {SEARCH}}}'),
    "call cut by max_tokens": Raw('{"name": "get_weather", "parameters": {"city": "Par', cut=True),
    "second call cut": Raw(LLAMA_PARIS + '; {"name": "get_weather", "parameters": {"city": "Tok', cut=True),
    "markup cut by max_tokens": Raw("Well <", cut=True),
    "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
    "stop string in a call": Raw('{"name": "get_weather", "parameters": {"city": "ENOUGH"}}', stop=STOP),
    "stop string that never comes": Raw(
        f"{LLAMA_PARIS}; {LLAMA_TOKYO}",
        stop=STOP,
        expected=Expected(
            calls=(Call("get_weather", {"city": "Paris", "days": 2}), Call("get_weather", {"city": "Tokyo"})),
            finish="tool_calls",
        ),
    ),
    # JSON that is no call is an answer (LocalAI L9988: an object with a "name" is not always a call)
    "JSON answer": Raw('{"person": "Ada", "born": 1815}', expected=Expected(content='{"person": "Ada", "born": 1815}')),
    "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
    "one call at most": Raw(f"{LLAMA_PARIS}; {LLAMA_TOKYO}", body={"parallel_tool_calls": False}),
}

# Phi-4-mini: functools[{"name": …, "arguments": …}, …]
PHI4 = {
    "text only": Raw(TEXT),
    "one call": Raw(f'functools[{{"name": "get_weather", "arguments": {PARIS}}}]'),
    "parallel calls": Raw(
        f'functools[{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "get_weather", "arguments": {TOKYO}}}]'
    ),
    "call without arguments": Raw('functools[{"name": "get_time", "arguments": {}}]'),
    "unicode and braces": Raw(f'functools[{{"name": "search", "arguments": {SEARCH}}}]'),
    "text before a call": Raw(f'Let me look.\nfunctools[{{"name": "get_weather", "arguments": {PARIS}}}]'),
    "call cut by max_tokens": Raw('functools[{"name": "get_weather", "arguments": {"city": "Par', cut=True),
    "second call cut": Raw(
        f'functools[{{"name": "get_weather", "arguments": {PARIS}}}, '
        '{"name": "get_weather", "arguments": {"city": "Tok',
        cut=True,
    ),
    "markup cut by max_tokens": Raw("Well func", cut=True, expected=Expected(content="Well func", finish="length")),
    "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
    "stop string in a call": Raw('functools[{"name": "get_weather", "arguments": {"city": "ENOUGH"}}]', stop=STOP),
    "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
    "one call at most": Raw(
        f'functools[{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "get_weather", "arguments": {TOKYO}}}]',
        body={"parallel_tool_calls": False},
    ),
}

# xLAM: the whole answer is a JSON array of calls, or one in a ```json block.
XLAM = {
    "text only": Raw(TEXT),
    "one call": Raw(f'[{{"name": "get_weather", "arguments": {PARIS}}}]'),
    "parallel calls": Raw(
        f'[{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "get_weather", "arguments": {TOKYO}}}]'
    ),
    "call without arguments": Raw('[{"name": "get_time", "arguments": {}}]'),
    "unicode and braces": Raw(f'[{{"name": "search", "arguments": {SEARCH}}}]'),
    "text before a call": Raw(f'Let me look.\n```json\n[{{"name": "get_weather", "arguments": {PARIS}}}]\n```'),
    "call cut by max_tokens": Raw('[{"name": "get_weather", "arguments": {"city": "Par', cut=True),
    "second call cut": Raw(
        f'[{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "get_weather", "arguments": {{"city": "Tok',
        cut=True,
    ),
    "markup cut by max_tokens": Raw("Well <", cut=True),
    "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
    "stop string in a call": Raw('[{"name": "get_weather", "arguments": {"city": "ENOUGH"}}]', stop=STOP),
    "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
    "one call at most": Raw(
        f'[{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "get_weather", "arguments": {TOKYO}}}]',
        body={"parallel_tool_calls": False},
    ),
}

# Mistral before v11: text[TOOL_CALLS][{"name": …, "arguments": …}, …]
MISTRAL = {
    "text only": Raw(TEXT),
    "one call": Raw(f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {PARIS}}}]'),
    "parallel calls": Raw(
        f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {PARIS}}}, '
        f'{{"name": "get_weather", "arguments": {TOKYO}}}]'
    ),
    "call without arguments": Raw('[TOOL_CALLS][{"name": "get_time", "arguments": {}}]'),
    "unicode and braces": Raw(f'[TOOL_CALLS][{{"name": "search", "arguments": {SEARCH}}}]'),
    "text before a call": Raw(f'Let me look.[TOOL_CALLS][{{"name": "get_weather", "arguments": {PARIS}}}]'),
    "call cut by max_tokens": Raw('[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Par', cut=True),
    "second call cut": Raw(
        f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {PARIS}}}, '
        '{"name": "get_weather", "arguments": {"city": "Tok',
        cut=True,
    ),
    "markup cut by max_tokens": Raw("Well <", cut=True),
    "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
    "stop string in a call": Raw('[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "ENOUGH"}}]', stop=STOP),
    "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
    "one call at most": Raw(
        f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {PARIS}}}, '
        f'{{"name": "get_weather", "arguments": {TOKYO}}}]',
        body={"parallel_tool_calls": False},
    ),
}

# Mistral from v11 on: text[TOOL_CALLS]NAME[ARGS]{…}[TOOL_CALLS]NAME[ARGS]{…}; from v13 on [THINK]…[/THINK] before it
V13_PARIS = f"[TOOL_CALLS]get_weather[ARGS]{PARIS}"
V13_TOKYO = f"[TOOL_CALLS]get_weather[ARGS]{TOKYO}"
MISTRAL_V13 = {
    "text only": Raw(TEXT),
    "reasoning": Raw("[THINK]Two and two.\nThat is four.[/THINK]2 + 2 = 4."),
    "one call": Raw(V13_PARIS),
    "parallel calls": Raw(V13_PARIS + V13_TOKYO),
    "call without arguments": Raw("[TOOL_CALLS]get_time[ARGS]{}"),
    "unicode and braces": Raw(f"[TOOL_CALLS]search[ARGS]{SEARCH}"),
    "call after reasoning": Raw(f"[THINK]I need the weather.[/THINK]{V13_PARIS}"),
    "text before a call": Raw(f"Let me look.{V13_PARIS}"),
    "call cut by max_tokens": Raw('[TOOL_CALLS]get_weather[ARGS]{"city": "Par', cut=True),
    "second call cut": Raw(V13_PARIS + '[TOOL_CALLS]get_weather[ARGS]{"city": "Tok', cut=True),
    "markup cut by max_tokens": Raw("Well <", cut=True),
    "reasoning cut by max_tokens": Raw("[THINK]I am still thin", cut=True),
    "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
    "stop string after reasoning": Raw("[THINK]Two and two.[/THINK]It is 4 ENOUGH or so", stop=STOP),
    "stop string in a call": Raw('[TOOL_CALLS]get_weather[ARGS]{"city": "ENOUGH"}', stop=STOP),
    "stop string that never comes": Raw(f"[THINK]I need the weather.[/THINK]{V13_PARIS}{V13_TOKYO}", stop=STOP),
    "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
    "one call at most": Raw(V13_PARIS + V13_TOKYO, body={"parallel_tool_calls": False}),
}

TOOL_CALL_TOKENS = ("<tool_call>", "</tool_call>")
THINK_TOKENS = ("<think>", "</think>")
NO_THINKING = "{% if not thinking %}<think>\n\n</think>\n\n{% endif %}"
FAMILIES = (
    Family(
        "hermes",
        "hermes",
        "qwen3",
        HERMES | constrained(HERMES_PARIS, f"{HERMES_PARIS}\n{HERMES_TOKYO}", HERMES_CUT),
        markup_tokens=(*THINK_TOKENS, *TOOL_CALL_TOKENS),
        generation_prompt=NO_THINKING,
    ),
    Family("granite4", "granite4", "granite", GRANITE4, markup_tokens=TOOL_CALL_TOKENS),
    Family(
        "llama3_json",
        "llama3_json",
        None,
        LLAMA3 | constrained(LLAMA_PARIS, f"{LLAMA_PARIS}; {LLAMA_TOKYO}", LLAMA_PARIS[:52]),
        special_tokens=("<|python_tag|>",),
    ),
    Family("phi4_mini_json", "phi4_mini_json", None, PHI4 | BARE_JSON),
    Family("xlam", "xlam", None, XLAM | BARE_JSON),
    Family("mistral", "mistral", None, MISTRAL | BARE_JSON, tokenizer="tekken"),
    Family(
        "mistral_v13",
        "mistral",
        "mistral",
        MISTRAL_V13
        | {
            # no named calls: mistral_common 1.13 refused them; not tried with 1.12, which is pinned now
            "required calls": Raw(V13_PARIS + V13_TOKYO, body=REQUIRED),
            "required call cut": Raw(V13_PARIS[:45], cut=True, body=REQUIRED),
        },
        tokenizer="tekken v13",
    ),
)
