# SPDX-License-Identifier: MIT
"""The usual cases of a family, written by its `Form`. What they mean is fixed: entries.EXPECTED."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.parity.entries import BARE_JSON, EXPECTED, STOP, Raw, constrained

Arguments = Mapping[str, Any]
Said = tuple[str, Arguments]  # name and arguments of a call

TEXT = "Paris, naïvely: 日本語 🎉 {braces}, 1 < 2 > 0 and [x]."
PARIS: Said = ("get_weather", {"city": "Paris", "days": 2})
TOKYO: Said = ("get_weather", {"city": "Tokyo"})
ENOUGH: Said = ("get_weather", {"city": "ENOUGH"})
SEARCH: Said = (
    "search",
    {
        "query": 'say "hi" {a: [1]} 日本語 🎉',
        "limit": 5,
        "filters": {"tags": ["x", "y}"], "deep": {"k": None}},
    },
)
MARKUP: Said = ("search", {"query": "a <b> & </c>, <d/> [e] <|f|>"})
GRANITE_THOUGHT = ("Here is my thought process: ", " Here is my response: ")


@dataclass(frozen=True, slots=True)
class Form:
    """How a family writes what it says. The pairs are what it puts before and after.

    `thought` is what the model itself writes around its reasoning: an opening tag that the prompt has is not in it.
    `quiet` comes first where no reasoning is wanted; `between` stands between two parts of an answer.
    """

    calls: Callable[..., str]  # (*calls: Said) → the text of all of them
    text: tuple[str, str] = ("", "")
    thought: tuple[str, str] | None = None
    quiet: str = ""
    between: str = ""

    def answer(self, *parts: str) -> str:
        return self.between.join(parts)

    def saying(self, text: str) -> str:
        begin, end = self.text
        return f"{begin}{text}{end}"

    def thinking(self, text: str) -> str:
        assert self.thought is not None
        begin, end = self.thought
        return f"{begin}{text}{end}"


def cases(form: Form, *, before: bool = True, after: bool = False, own_markup: bool = False) -> dict[str, Raw]:
    """The entries of a tool parser, and of the reasoning parser with it if the form has one.

    `before` and `after` say whether the format allows text there, `own_markup` whether required and named calls come
    in it; else vLLM's grammar makes them bare JSON.
    """
    one, both = form.calls(PARIS), form.calls(PARIS, TOKYO)
    raws = {
        "text only": Raw(form.saying(TEXT)),
        "one call": Raw(one),
        "parallel calls": Raw(both),
        "call without arguments": Raw(form.calls(("get_time", {}))),
        "unicode and braces": Raw(form.calls(SEARCH)),
        "markup in arguments": Raw(form.calls(MARKUP)),
        "call cut by max_tokens": _cut(one, "Par"),
        "second call cut": _cut(both, "Tok"),
        "markup cut by max_tokens": Raw(f"{form.text[0]}Well <", cut=True),
        "stop string in the text": Raw(form.saying("First, second, ENOUGH third"), stop=STOP),
        "stop string in a call": Raw(form.calls(ENOUGH), stop=STOP),
        "tool_choice none": Raw(form.saying("No call."), body={"tool_choice": "none"}),
        "one call at most": Raw(both, body={"parallel_tool_calls": False}),
    }
    if before:
        raws["text before a call"] = Raw(form.answer(form.saying("Let me look.\n"), one))
    if before and after:
        raws["text around a call"] = Raw(form.answer(form.saying("Let me look. "), one, form.saying("Done.")))
    raws |= constrained(one, both, _cut(one, "Par").text) if own_markup else BARE_JSON
    if form.thought is None:
        return {**raws, "stop string that never comes": Raw(both, stop=STOP, expected=EXPECTED["parallel calls"])}
    quiet = {case: replace(raw, text=form.quiet + raw.text) for case, raw in raws.items()}
    return {**quiet, **reasoned_calls(form), **reasoning_cases(form)}


SEVERAL_CALLS = (
    *("parallel calls", "second call cut", "one call at most", "required calls"),
    "stop string that never comes",
)


def single_calls(raws: Mapping[str, Raw]) -> dict[str, Raw]:
    """Without the cases of several calls, for a family that makes one at a time."""
    return {case: raw for case, raw in raws.items() if case not in SEVERAL_CALLS}


def reasoning_cases(form: Form, body: Mapping[str, Any] | None = None) -> dict[str, Raw]:
    """Reasoning and text; `body` goes with every request."""
    own = body or {}
    thought, answer = "Two and two.\nThat is four.", form.saying("2 + 2 = 4.")
    assert form.thought is not None
    opened, _ = form.thought
    return {
        "reasoning": Raw(form.answer(form.thinking(thought), answer), thinking=True, body=own),
        "reasoning cut by max_tokens": Raw(f"{opened}I am still thin", cut=True, thinking=True, body=own),
        "reasoning without tools": Raw(
            form.answer(form.thinking(thought), answer), thinking=True, body={**own, "tools": None}
        ),
        "reasoning not wanted": Raw(
            form.answer(form.thinking("Two and two."), answer), thinking=True, body={**own, "include_reasoning": False}
        ),
        "stop string after reasoning": Raw(
            form.answer(form.thinking("Two and two."), form.saying("It is 4 ENOUGH or so")),
            stop=STOP,
            thinking=True,
            body=own,
        ),
    }


def reasoned_calls(form: Form) -> dict[str, Raw]:
    """Reasoning and calls."""
    need = form.thinking("I need the weather.")
    return {
        "call after reasoning": Raw(form.answer(need, form.calls(PARIS)), thinking=True),
        "stop string that never comes": Raw(form.answer(need, form.calls(PARIS, TOKYO)), stop=STOP, thinking=True),
    }


def _cut(text: str, at: str) -> Raw:
    """`text` up to and with `at`, by the token limit."""
    return Raw(text[: text.index(at) + len(at)], cut=True)


def json_text(value: Any) -> str:
    """A value inside markup: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def json_call(call: Said, *, arguments: str = "arguments") -> str:
    return f'{{"name": "{call[0]}", "{arguments}": {json_text(call[1])}}}'


def python_call(call: Said) -> str:
    """With values as JSON writes them, as the chat templates of these families do."""
    return f"{call[0]}({', '.join(f'{key}={json.dumps(value, ensure_ascii=False)}' for key, value in call[1].items())})"


def gemma_value(value: Any, quote: str) -> str:
    """A value as the Gemmas write it: text between two tokens, everything else bare."""
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{gemma_value(item, quote)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(gemma_value(item, quote) for item in value)}]"
    return json_text(value)


def listed(begin: str, end: str, write: Callable[[Said], str] = json_call) -> Callable[..., str]:
    """All calls in one list."""
    return lambda *calls: f"{begin}[{', '.join(map(write, calls))}]{end}"


def repeated(
    begin: str, end: str, write: Callable[[Said], str] = json_call, *, separator: str = "\n"
) -> Callable[..., str]:
    """Each call in its own tags."""
    return lambda *calls: separator.join(f"{begin}{write(call)}{end}" for call in calls)


def enclosed(begin: str, end: str, write: Callable[[Said], str], *, separator: str = "\n") -> Callable[..., str]:
    """All calls in one pair of tags."""
    return lambda *calls: f"{begin}{separator.join(map(write, calls))}{end}"
