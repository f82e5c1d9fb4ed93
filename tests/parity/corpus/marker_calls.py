# SPDX-License-Identifier: MIT
"""Families whose calls stand between special tokens."""

from __future__ import annotations

from tests.parity.entries import STOP, Call, Expected, Family, Raw, constrained

TEXT = "Paris, naïvely: 日本語 🎉 {braces}, 1 < 2 > 0 and [x]."
QUERY = r'"say \"hi\" {a: [1]} 日本語 🎉"'
SEARCH = f'{{"query": {QUERY}, "limit": 5, "filters": {{"tags": ["x", "y}}"], "deep": {{"k": null}}}}}}'
PARIS = '{"city": "Paris", "days": 2}'
TOKYO = '{"city": "Tokyo"}'
BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEP, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"


# DeepSeek V3 / R1-0528: begin, then per call  call function sep NAME \n```json\nARGUMENTS\n``` call_end
def v3(name: str, arguments: str) -> str:
    return f"{CALL}function{SEP}{name}\n```json\n{arguments}\n```{CALL_END}"


# DeepSeek V3.1:  call NAME sep ARGUMENTS call_end
def v31(name: str, arguments: str) -> str:
    return f"{CALL}{name}{SEP}{arguments}{CALL_END}"


# Kimi K2:  the header is the call's id, functions.NAME:INDEX
def kimi(name: str, arguments: str, index: int = 0) -> str:
    return f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"


def around(begin: str, paris: str, tokyo: str, end: str, *, separator: str, opened: str) -> dict[str, Raw]:
    one, both = f"{begin}{paris}{end}", f"{begin}{paris}{separator}{tokyo}{end}"
    return {
        "text only": Raw(TEXT),
        "reasoning": Raw(f"{opened}Two and two.\nThat is four.</think>2 + 2 = 4.", thinking=True),
        "one call": Raw(one),
        "parallel calls": Raw(both),
        "call after reasoning": Raw(f"{opened}I need the weather.</think>{one}", thinking=True),
        "text before a call": Raw(f"Let me look.{one}"),
        "markup cut by max_tokens": Raw("Well <", cut=True),
        "reasoning without tools": Raw(
            f"{opened}Two and two.\nThat is four.</think>2 + 2 = 4.", thinking=True, body={"tools": None}
        ),
        "reasoning not wanted": Raw(
            f"{opened}Two and two.</think>2 + 2 = 4.", thinking=True, body={"include_reasoning": False}
        ),
        "reasoning cut by max_tokens": Raw(f"{opened}I am still thin", cut=True, thinking=True),
        "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
        "stop string after reasoning": Raw(
            f"{opened}Two and two.</think>It is 4 ENOUGH or so", stop=STOP, thinking=True
        ),
        "stop string that never comes": Raw(f"{opened}I need the weather.</think>{both}", stop=STOP, thinking=True),
        "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
        "one call at most": Raw(both, body={"parallel_tool_calls": False}),
        **constrained(one, both, one[: one.index("Paris") + 3]),
    }


DEEPSEEK_V3 = {
    **around(BEGIN, v3("get_weather", PARIS), v3("get_weather", TOKYO), END, separator="\n", opened=""),
    "call without arguments": Raw(BEGIN + v3("get_time", "{}") + END),
    "unicode and braces": Raw(BEGIN + v3("search", SEARCH) + END),
    "call cut by max_tokens": Raw(f'{BEGIN}{CALL}function{SEP}get_weather\n```json\n{{"city": "Par', cut=True),
    "second call cut": Raw(
        f'{BEGIN}{v3("get_weather", PARIS)}\n{CALL}function{SEP}get_weather\n```json\n{{"city": "Tok', cut=True
    ),
    "stop string in a call": Raw(BEGIN + v3("get_weather", '{"city": "ENOUGH"}') + END, stop=STOP),
    "arguments over several lines": Raw(
        BEGIN + v3("get_weather", '{\n  "city": "Paris",\n  "days": 2\n}') + END,
        expected=Expected(calls=(Call("get_weather", {"city": "Paris", "days": 2}),), finish="tool_calls"),
    ),
}
DEEPSEEK_V31 = {
    **around(BEGIN, v31("get_weather", PARIS), v31("get_weather", TOKYO), END, separator="", opened=""),
    "call without arguments": Raw(BEGIN + v31("get_time", "{}") + END),
    "unicode and braces": Raw(BEGIN + v31("search", SEARCH) + END),
    "call cut by max_tokens": Raw(f'{BEGIN}{CALL}get_weather{SEP}{{"city": "Par', cut=True),
    "second call cut": Raw(f'{BEGIN}{v31("get_weather", PARIS)}{CALL}get_weather{SEP}{{"city": "Tok', cut=True),
    "stop string in a call": Raw(BEGIN + v31("get_weather", '{"city": "ENOUGH"}') + END, stop=STOP),
}
SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
KIMI = {
    **around(
        SECTION,
        kimi("get_weather", PARIS),
        kimi("get_weather", TOKYO, 1),
        SECTION_END,
        separator="",
        opened="<think>",
    ),
    "call without arguments": Raw(SECTION + kimi("get_time", "{}") + SECTION_END),
    "unicode and braces": Raw(SECTION + kimi("search", SEARCH) + SECTION_END),
    "call cut by max_tokens": Raw(
        SECTION + '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Par', cut=True
    ),
    "second call cut": Raw(
        SECTION
        + kimi("get_weather", PARIS)
        + '<|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{"city": "Tok',
        cut=True,
    ),
    "stop string in a call": Raw(SECTION + kimi("get_weather", '{"city": "ENOUGH"}') + SECTION_END, stop=STOP),
}

# Gemma 4: <|channel>thought\n…<channel|> and <|tool_call>call:NAME{key:<|"|>text<|"|>,key:1}<tool_call|>
Q = '<|"|>'
GEMMA_PARIS = f"<|tool_call>call:get_weather{{city:{Q}Paris{Q},days:2}}<tool_call|>"
GEMMA_TOKYO = f"<|tool_call>call:get_weather{{city:{Q}Tokyo{Q}}}<tool_call|>"
THOUGHT = "<|channel>thought\n"
GEMMA4 = {
    "text only": Raw(TEXT),
    "reasoning": Raw(f"{THOUGHT}Two and two.\nThat is four.\n<channel|>2 + 2 = 4.", thinking=True),
    "one call": Raw(GEMMA_PARIS),
    "parallel calls": Raw(GEMMA_PARIS + GEMMA_TOKYO),
    "call without arguments": Raw("<|tool_call>call:get_time{}<tool_call|>"),
    "unicode and braces": Raw(
        f'<|tool_call>call:search{{query:{Q}say "hi" {{a: [1]}} 日本語 🎉{Q},limit:5,'
        f"filters:{{tags:[{Q}x{Q},{Q}y}}{Q}],deep:{{k:null}}}}}}<tool_call|>"
    ),
    "call after reasoning": Raw(f"{THOUGHT}I need the weather.\n<channel|>{GEMMA_PARIS}", thinking=True),
    "text before a call": Raw(f"Let me look.\n{GEMMA_PARIS}"),
    "text around a call": Raw(f"Let me look. {GEMMA_PARIS}Done."),
    "call cut by max_tokens": Raw(f"<|tool_call>call:get_weather{{city:{Q}Par", cut=True),
    "second call cut": Raw(f"{GEMMA_PARIS}<|tool_call>call:get_weather{{city:{Q}Tok", cut=True),
    "markup cut by max_tokens": Raw("Well <", cut=True),
    "reasoning cut by max_tokens": Raw(f"{THOUGHT}I am still thin", cut=True, thinking=True),
    "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
    "stop string after reasoning": Raw(
        f"{THOUGHT}Two and two.\n<channel|>It is 4 ENOUGH or so", stop=STOP, thinking=True
    ),
    "stop string in a call": Raw(f"<|tool_call>call:get_weather{{city:{Q}ENOUGH{Q}}}<tool_call|>", stop=STOP),
    "stop string that never comes": Raw(
        f"{THOUGHT}I need the weather.\n<channel|>{GEMMA_PARIS}{GEMMA_TOKYO}", stop=STOP, thinking=True
    ),
    "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
    "one call at most": Raw(GEMMA_PARIS + GEMMA_TOKYO, body={"parallel_tool_calls": False}),
    # vLLM puts no grammar on Gemma's required and named calls: they come in its own markup
    **constrained(GEMMA_PARIS, GEMMA_PARIS + GEMMA_TOKYO, f"<|tool_call>call:get_weather{{city:{Q}Par"),
}

DEEPSEEK_TOKENS = (BEGIN, END, CALL, SEP, CALL_END)
DEEPSEEK_PROMPT = "{% if thinking %}<think>{% else %}</think>{% endif %}"
FAMILIES = (
    Family(
        "deepseek_v3",
        "deepseek_v3",
        "deepseek_v3",
        DEEPSEEK_V3,
        markup_tokens=("<think>", "</think>", *DEEPSEEK_TOKENS),
        generation_prompt=DEEPSEEK_PROMPT,
        thinking_kwarg="thinking",
    ),
    Family(
        "deepseek_v31",
        "deepseek_v31",
        "deepseek_v3",
        DEEPSEEK_V31,
        markup_tokens=("<think>", "</think>", *DEEPSEEK_TOKENS),
        generation_prompt=DEEPSEEK_PROMPT,
        thinking_kwarg="thinking",
    ),
    Family(
        "kimi_k2",
        "kimi_k2",
        "kimi_k2",
        KIMI,
        special_tokens=(
            SECTION,
            SECTION_END,
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
        markup_tokens=("<think>", "</think>"),
    ),
    Family(
        "gemma4",
        "gemma4",
        "gemma4",
        GEMMA4,
        special_tokens=("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", Q, "<|turn>", "<turn|>"),
        generation_prompt="<|turn>model\n",
    ),
)
