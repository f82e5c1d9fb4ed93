# SPDX-License-Identifier: MIT
"""Reasoning parsers without a tool parser, and one that leaves the reasoning in the text."""

from __future__ import annotations

from tests.parity.corpus.forms import TEXT, Form, reasoning_cases
from tests.parity.entries import Expected, Family, Raw

TAGS = ("<think>", "</think>")
OPENED = ("", "</think>")  # by the prompt
NO_TOOLS = {"tools": None}


def reasoning(
    name: str,
    thought: tuple[str, str],
    prompt: str,
    *,
    tokens: tuple[str, ...] = TAGS,
    can_be_off: bool = True,
    thinking_kwarg: str = "enable_thinking",
) -> Family:
    """`can_be_off`: the model can be asked for an answer without reasoning."""
    raws = reasoning_cases(Form(lambda *calls: "", thought=thought), NO_TOOLS)
    del raws["reasoning without tools"]  # it is that one already
    if can_be_off:
        raws["text only"] = Raw(TEXT, body=NO_TOOLS)
    return Family(
        f"reasoning: {name}",
        None,
        name,
        raws,
        markup_tokens=tokens,
        generation_prompt=prompt,
        thinking_kwarg=thinking_kwarg,
    )


SWITCHED = "{% if thinking %}<think>{% else %}<think></think>{% endif %}"
# MiniMax M2's reasoning goes on to the client between its tags, the opening one put back.
APPENDED = Family(
    "reasoning: minimax_m2_append_think",
    None,
    "minimax_m2_append_think",
    {
        "reasoning": Raw(
            "Two and two.</think>\n\n2 + 2 = 4.",
            thinking=True,
            expected=Expected(content="<think>Two and two.</think>\n\n2 + 2 = 4."),
            body=NO_TOOLS,
        ),
        "reasoning cut by max_tokens": Raw(
            "I am still thin",
            cut=True,
            thinking=True,
            expected=Expected(content="<think>I am still thin", finish="length"),
            body=NO_TOOLS,
        ),
    },
    markup_tokens=TAGS,
    generation_prompt="<think>\n",
)
FAMILIES = (
    reasoning("deepseek_r1", OPENED, "<think>", can_be_off=False),
    reasoning("deepseek_v3", TAGS, "{% if not thinking %}</think>{% endif %}", thinking_kwarg="thinking"),
    reasoning("holo2", OPENED, SWITCHED),
    reasoning("nemotron_v3", OPENED, SWITCHED),
    reasoning("minimax_m3", ("<mm:think>", "</mm:think>"), "", tokens=("<mm:think>", "</mm:think>")),
    APPENDED,
)
