# SPDX-License-Identifier: MIT
"""Families beyond the common ones whose calls are JSON or Python in the family's own tags."""

from __future__ import annotations

from tests.parity.corpus.forms import (
    GRANITE_THOUGHT,
    Form,
    Said,
    cases,
    enclosed,
    gemma_value,
    json_text,
    listed,
    python_call,
    repeated,
    single_calls,
)
from tests.parity.entries import Call, Expected, Family, Raw

PARIS = Call("get_weather", {"city": "Paris", "days": 2})
TOKENS = ("<think>", "</think>")


# Apertus: each call is an object with one key, the tool's name.
def apertus_call(call: Said) -> str:
    return f'{{"{call[0]}": {json_text(call[1])}}}'


def gemma_call(call: Said) -> str:
    return f"call:{call[0]}{gemma_value(call[1], '<escape>')}"


# GigaChat 3: another role speaks. 3.1 has a token for it.
GIGACHAT_CALL = "<|message_sep|>\n\nfunction call<|role_sep|>\n"
GIGACHAT31_PARIS = f'<|function_call|>{{"name": "get_weather", "arguments": {json_text(PARIS.arguments)}}}'


# Inkling: blocks of one kind each, every marker a token. The prompt opens the first one.
def inkling_call(call: Said) -> str:
    return f'{call[0]}<|content_invoke_tool_json|>{{"name":"{call[0]}","args":{json_text(call[1])}}}<|end_message|>'


INKLING = Form(
    repeated("", "", inkling_call, separator="<|message_model|>"),
    text=("<|content_text|>", "<|end_message|>"),
    thought=("<|content_thinking|>", "<|end_message|>"),
    between="<|message_model|>",
)
INKLING_TOKENS = (
    *("<|message_user|>", "<|message_model|>", "<|content_text|>", "<|content_thinking|>", "<|end_message|>"),
    *("<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>", "<|content_tool_error|>"),
    "<|content_model_end_sampling|>",
)

FAMILIES = (
    # Apertus: text and one list of calls
    Family(
        "apertus",
        "apertus",
        None,
        cases(Form(listed("<|tools_prefix|>", "<|tools_suffix|>", apertus_call)), after=True),
        special_tokens=("<|tools_prefix|>", "<|tools_suffix|>"),
    ),
    # ERNIE 4.5: Hermes' calls; the thinking models put their answer between <response> and </response>, or not
    Family(
        "ernie45",
        "ernie45",
        "ernie45",
        cases(Form(repeated("<tool_call>\n", "\n</tool_call>\n"), thought=("", "\n</think>\n\n"), quiet="</think>\n"))
        | {
            "reasoning and marked answer": Raw(
                "Two and two.\nThat is four.\n</think>\n\n<response>\n2 + 2 = 4.\n</response>\n",
                thinking=True,
                expected=Expected(content="2 + 2 = 4.", reasoning="Two and two.\nThat is four."),
            ),
        },
        markup_tokens=(*TOKENS, "<tool_call>", "</tool_call>", "<response>", "</response>", "<0x0A>"),
        generation_prompt="<think>",
    ),
    # FunctionGemma: Gemma 4's calls with other tokens
    Family(
        "functiongemma",
        "functiongemma",
        None,
        cases(Form(repeated("<start_function_call>", "<end_function_call>", gemma_call, separator=""))),
        special_tokens=("<start_function_call>", "<end_function_call>", "<escape>"),
    ),
    # one call at a time
    Family(
        "gigachat3",
        "gigachat3",
        None,
        single_calls(cases(Form(repeated(GIGACHAT_CALL, ""))))
        | {"one call of 3.1": Raw(GIGACHAT31_PARIS, expected=Expected(calls=(PARIS,), finish="tool_calls"))},
        special_tokens=("<|message_sep|>", "<|role_sep|>", "<|function_call|>"),
    ),
    # Granite 3: <|tool_call|>[…], the whole answer; 3.2 thinks in phrases
    Family(
        "granite",
        "granite",
        "granite",
        cases(Form(listed("<|tool_call|>", ""), thought=GRANITE_THOUGHT), before=False),
        special_tokens=("<|tool_call|>",),
    ),
    # Granite 20B for function calling: a tag before each call and none after it
    Family(
        "granite-20b-fc",
        "granite-20b-fc",
        None,
        cases(Form(repeated("<function_call> ", ""))),
        markup_tokens=("<function_call>",),
    ),
    # Hunyuan A13B: Jamba's tags, as plain text
    Family("hunyuan_a13b", "hunyuan_a13b", None, cases(Form(listed("<tool_calls>", "</tool_calls>")))),
    Family(
        "inkling",
        "inkling",
        "inkling",
        cases(INKLING, after=True, own_markup=True),
        special_tokens=INKLING_TOKENS,
        generation_prompt="<|message_model|>",
    ),
    # InternLM 2: one call only
    Family(
        "internlm",
        "internlm",
        None,
        single_calls(cases(Form(repeated("<|action_start|><|plugin|>", "<|action_end|>")))),
        special_tokens=("<|action_start|>", "<|action_end|>", "<|plugin|>"),
    ),
    # Jamba: <tool_calls>[…]</tool_calls>
    Family(
        "jamba",
        "jamba",
        None,
        cases(Form(listed("<tool_calls>", "</tool_calls>"))),
        markup_tokens=("<tool_calls>", "</tool_calls>"),
    ),
    # LFM 2: a Python list between two tokens
    Family(
        "lfm2",
        "lfm2",
        None,
        cases(Form(listed("<|tool_call_start|>", "<|tool_call_end|>", python_call))),
        special_tokens=("<|tool_call_start|>", "<|tool_call_end|>"),
    ),
    # LongCat: Hermes' calls in its own tags
    Family(
        "longcat",
        "longcat",
        None,
        cases(Form(repeated("<longcat_tool_call>\n", "\n</longcat_tool_call>")), own_markup=True),
        markup_tokens=("<longcat_tool_call>", "</longcat_tool_call>"),
    ),
    # OLMo 3: Python calls on lines of their own. Its think tags are no tokens: "</think>" is three of its vocabulary.
    Family(
        "olmo3",
        "olmo3",
        "olmo3",
        cases(
            Form(
                enclosed("<function_calls>\n", "\n</function_calls>", python_call),
                thought=("", "</think>"),
                quiet="</think>",
            ),
            before=False,
        ),
        markup_tokens=("Ġ</", "</", "think", ">"),
        generation_prompt="<think>",
    ),
)
