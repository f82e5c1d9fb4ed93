# SPDX-License-Identifier: MIT
"""What an entry of the corpus is, and what each case must give, written by hand before anything was run.

An entry is a raw model output of one family, written from that family's documented format, and the meaning it has. The
meanings are the same for every family (`EXPECTED`); a family overrides one only where its format says something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `arguments` is the JSON value; None is a call that was cut and must not look like a whole one."""

    name: str
    arguments: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Expected:
    """Content and reasoning are compared without the white space around them; everything else exactly."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = "stop"


@dataclass(frozen=True, slots=True)
class Raw:
    """One scripted output. It ends with the end-of-sequence token, or by the token limit if `cut`."""

    text: str
    cut: bool = False
    stop: tuple[str, ...] = ()
    thinking: bool = False  # the prompt asks for reasoning
    expected: Expected | None = None  # None: the case's
    body: Mapping[str, Any] = field(default_factory=lambda: NOTHING)  # further request fields


@dataclass(frozen=True, slots=True)
class Family:
    """A tool parser, the reasoning parser that goes with it, and the tokenizer both need."""

    name: str
    tool_parser: str | None
    reasoning_parser: str | None
    raws: Mapping[str, Raw]
    special_tokens: tuple[str, ...] = ()  # single tokens that decoding skips unless told otherwise
    markup_tokens: tuple[str, ...] = ()  # single tokens that decoding never skips
    generation_prompt: str = ""  # Jinja, after the assistant header; `thinking` says whether reasoning is wanted
    thinking_kwarg: str = "enable_thinking"
    thinking_values: tuple[Any, Any] = (False, True)  # of that: without and with reasoning
    tokenizer: str = "bpe"  # or: tekken, o200k
    config: Mapping[str, Any] = field(default_factory=lambda: NOTHING)  # of config.json
    needs: Callable[[], str] = lambda: ""  # what is missing for it on this machine, if anything

    def missing(self) -> str:
        return self.needs()


@dataclass(frozen=True, slots=True)
class Entry:
    family: Family
    case: str
    raw: Raw
    expected: Expected

    @property
    def name(self) -> str:
        return f"{self.family.name}: {self.case}"


def function(name: str, description: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": dict(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = (
    function("get_weather", "The weather.", {"city": {"type": "string"}, "days": {"type": "integer"}}),
    function("get_time", "The time.", {}),
    function(
        "search",
        "Search.",
        {"query": {"type": "string"}, "limit": {"type": "integer"}, "filters": {"type": "object"}},
    ),
)

PARIS = Call("get_weather", {"city": "Paris", "days": 2})
TOKYO = Call("get_weather", {"city": "Tokyo"})
SEARCH = Call(
    "search",
    {"query": 'say "hi" {a: [1]} 日本語 🎉', "limit": 5, "filters": {"tags": ["x", "y}"], "deep": {"k": None}}},
)

# An argument longer than readers treat as short.
LONG = ("A line of text, with <b>markup</b> & {braces}; " * 80).strip()

EXPECTED: Mapping[str, Expected] = MappingProxyType(
    {
        "text only": Expected(content="Paris, naïvely: 日本語 🎉 {braces}, 1 < 2 > 0 and [x]."),
        "reasoning": Expected(content="2 + 2 = 4.", reasoning="Two and two.\nThat is four."),
        "one call": Expected(calls=(PARIS,), finish="tool_calls"),
        "parallel calls": Expected(calls=(PARIS, TOKYO), finish="tool_calls"),
        "call without arguments": Expected(calls=(Call("get_time", {}),), finish="tool_calls"),
        "unicode and braces": Expected(calls=(SEARCH,), finish="tool_calls"),
        "markup in arguments": Expected(
            calls=(Call("search", {"query": "a <b> & </c>, <d/> [e] <|f|>"}),), finish="tool_calls"
        ),
        "call after reasoning": Expected(reasoning="I need the weather.", calls=(PARIS,), finish="tool_calls"),
        "text before a call": Expected(content="Let me look.", calls=(PARIS,), finish="tool_calls"),
        "text around a call": Expected(content="Let me look. Done.", calls=(PARIS,), finish="tool_calls"),
        "call cut by max_tokens": Expected(calls=(Call("get_weather", None),), finish="length"),
        "second call cut": Expected(calls=(PARIS, Call("get_weather", None)), finish="length"),
        "markup cut by max_tokens": Expected(content="Well <", finish="length"),
        "reasoning cut by max_tokens": Expected(reasoning="I am still thin", finish="length"),
        "stop string in the text": Expected(content="First, second,"),
        "stop string after reasoning": Expected(content="It is 4", reasoning="Two and two."),
        "stop string in a call": Expected(calls=(Call("get_weather", None),)),
        "stop string that never comes": Expected(
            reasoning="I need the weather.", calls=(PARIS, TOKYO), finish="tool_calls"
        ),
        "tool_choice none": Expected(content="No call."),
        "reasoning without tools": Expected(content="2 + 2 = 4.", reasoning="Two and two.\nThat is four."),
        "reasoning not wanted": Expected(content="2 + 2 = 4."),
        "one call at most": Expected(calls=(PARIS,), finish="tool_calls"),
        "required calls": Expected(calls=(PARIS, TOKYO), finish="tool_calls"),
        "required call cut": Expected(calls=(Call("get_weather", None),), finish="length"),
        "named call": Expected(calls=(PARIS,)),
        "named call cut": Expected(calls=(Call("get_weather", None),), finish="length"),
        "long arguments": Expected(calls=(Call("search", {"query": LONG}),), finish="tool_calls"),
        "call without its end": Expected(calls=(PARIS,), finish="tool_calls"),
        "call with a brace too many": Expected(calls=(PARIS,), finish="tool_calls"),
        "arguments before the name": Expected(calls=(PARIS,), finish="tool_calls"),
    }
)
STOP = ("ENOUGH",)
REQUIRED = MappingProxyType({"tool_choice": "required"})
NAMED = MappingProxyType({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}})

# What a grammar for bare JSON lets a model write, where vLLM has none for the family's own markup.
BARE_JSON = {
    "required calls": Raw(
        '[{"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}, '
        '{"name": "get_weather", "parameters": {"city": "Tokyo"}}]',
        body=REQUIRED,
    ),
    "required call cut": Raw('[{"name": "get_weather", "parameters": {"city": "Par', cut=True, body=REQUIRED),
    "named call": Raw('{"city": "Paris", "days": 2}', body=NAMED),
    "named call cut": Raw('{"city": "Par', cut=True, body=NAMED),
}


def constrained(one: str, both: str, cut: str) -> dict[str, Raw]:
    """The same where the family's own markup is what the grammar demands."""
    return {
        "required calls": Raw(both, body=REQUIRED),
        "required call cut": Raw(cut, cut=True, body=REQUIRED),
        "named call": Raw(one, body=NAMED),
        "named call cut": Raw(cut, cut=True, body=NAMED),
    }
