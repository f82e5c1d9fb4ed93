# SPDX-License-Identifier: MIT
"""Families whose calls stand between special tokens."""

from __future__ import annotations

from tests.parity.corpus.forms import Form, Said, cases, enclosed, gemma_value, json_text, repeated
from tests.parity.entries import Call, Expected, Family, Raw

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEP, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
ITEM, ARGUMENTS, ITEM_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
QUOTE = '<|"|>'
THINK = ("<think>", "</think>")


# DeepSeek V3 / R1-0528: call function sep NAME \n```json\nARGUMENTS\n``` call_end
def v3(call: Said) -> str:
    return f"{CALL}function{SEP}{call[0]}\n```json\n{json_text(call[1])}\n```{CALL_END}"


# DeepSeek V3.1:  call NAME sep ARGUMENTS call_end
def v31(call: Said) -> str:
    return f"{CALL}{call[0]}{SEP}{json_text(call[1])}{CALL_END}"


# Kimi K2:  the header is the call's id, functions.NAME:INDEX
def kimi(*calls: Said) -> str:
    items = (
        f"{ITEM}functions.{name}:{index}{ARGUMENTS}{json_text(arguments)}{ITEM_END}"
        for index, (name, arguments) in enumerate(calls)
    )
    return f"{SECTION}{''.join(items)}{SECTION_END}"


# Gemma 4:  call:NAME{key:<|"|>text<|"|>,key:1}
def gemma(call: Said) -> str:
    return f"call:{call[0]}{gemma_value(call[1], QUOTE)}"


DEEPSEEK_TOKENS = (*THINK, BEGIN, END, CALL, SEP, CALL_END)
DEEPSEEK_PROMPT = "{% if thinking %}<think>{% else %}</think>{% endif %}"
FAMILIES = (
    Family(
        "deepseek_v3",
        "deepseek_v3",
        "deepseek_v3",
        cases(Form(enclosed(BEGIN, END, v3), thought=("", "</think>")), own_markup=True)
        | {
            "arguments over several lines": Raw(
                f'{BEGIN}{CALL}function{SEP}get_weather\n```json\n{{\n  "city": "Paris",\n  "days": 2\n}}\n```'
                f"{CALL_END}{END}",
                expected=Expected(calls=(Call("get_weather", {"city": "Paris", "days": 2}),), finish="tool_calls"),
            ),
        },
        markup_tokens=DEEPSEEK_TOKENS,
        generation_prompt=DEEPSEEK_PROMPT,
        thinking_kwarg="thinking",
    ),
    Family(
        "deepseek_v31",
        "deepseek_v31",
        "deepseek_v3",
        cases(Form(enclosed(BEGIN, END, v31, separator=""), thought=("", "</think>")), own_markup=True),
        markup_tokens=DEEPSEEK_TOKENS,
        generation_prompt=DEEPSEEK_PROMPT,
        thinking_kwarg="thinking",
    ),
    Family(
        "kimi_k2",
        "kimi_k2",
        "kimi_k2",
        cases(Form(kimi, thought=THINK), own_markup=True),
        special_tokens=(SECTION, SECTION_END, ITEM, ARGUMENTS, ITEM_END),
        markup_tokens=THINK,
    ),
    # vLLM puts no grammar on Gemma's required and named calls: they come in its own markup
    Family(
        "gemma4",
        "gemma4",
        "gemma4",
        cases(
            Form(
                repeated("<|tool_call>", "<tool_call|>", gemma, separator=""),
                thought=("<|channel>thought\n", "\n<channel|>"),
            ),
            after=True,
            own_markup=True,
        ),
        special_tokens=(
            *("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", QUOTE, "<|turn>", "<turn|>"),
            "<|tool_response>",  # 0.22's parser wants it in the vocabulary, as Gemma's has it
        ),
        generation_prompt="<|turn>model\n",
    ),
)
