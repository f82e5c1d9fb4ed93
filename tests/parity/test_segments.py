# SPDX-License-Identifier: MIT
"""JSON calls between markers, without vLLM: what they mean whole, cut anywhere and in pieces; one row a rule."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from chatdelta.toolcalls import is_json_object
from tests.parity.test_readers import joined, new_sink
from vllm_engine.calls.completed_calls import Notation
from vllm_engine.calls.json_value import ValueScanner, belonging
from vllm_engine.calls.segments import Markers, Segments

NAMES = {"f", "g"}
TAGS = Markers(("<call>",), ("</call>",), ignored=("<answer>",))
BLOCKS = Markers(("```json", "```"), ("```",), only_calls=False, bare="[")
OBJECTS = Markers(("<tag>",), (";",), bare="{")
PYTHON = Markers(("<calls>",), ("</calls>",), bare="[", notation=Notation.PYTHON)
VALUES = (
    r'{"a": [1, -2.5e3, true, null], "b": {"c": "x\"y\\", "d": ""}, "e": []}',
    r'["\u00e9\ud83c\udf89z", "\ud83d", {"k]}": "\n"}]',
    '{\n  "a" : "}" ,\n  "b" : {\n }\n}',
)


@dataclass
class Function:
    name: str
    arguments: str


def strict_parse(json_text: str) -> Sequence[Any]:
    """As native whole-text parses are: what is no JSON, or a call without a name or arguments, is no call."""
    try:
        value = json.loads(json_text)
        calls = value if isinstance(value, list) else [value]
        return [
            SimpleNamespace(id=None, function=Function(call["name"], json.dumps(call["arguments"]))) for call in calls
        ]
    except (ValueError, KeyError, TypeError):
        return ()


def parse_python(text: str) -> Sequence[Any]:
    """As vLLM's function for Python calls, with literals as Python has them."""
    try:
        calls = ast.parse(text, mode="eval").body.elts  # type: ignore[attr-defined]
        return [
            SimpleNamespace(
                id=None,
                function=Function(
                    call.func.id, json.dumps({each.arg: ast.literal_eval(each.value) for each in call.keywords})
                ),
            )
            for call in calls
        ]
    except (SyntaxError, ValueError, AttributeError):
        return ()


def read(
    text: str, cuts: Sequence[int] = (), *, markers: Markers = TAGS, cut: bool = False
) -> tuple[str, list[tuple[str, str]], bool]:
    """(content, calls, whether all are whole), fed in the pieces that `cuts` makes of `text`."""
    sink = new_sink()
    parse = strict_parse if markers.notation is Notation.JSON else parse_python
    reader = Segments(sink, markers, parse, NAMES)
    for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True):
        reader.feed(text[start:end], None)
    reader.finish(cut=cut)
    sink.finish()
    delta = sink.take()
    return delta.content, list(joined(delta.tool_calls)), sink.called


F, G = '{"name": "f", "arguments": {"x": 1}}', '{"name": "g", "arguments": {}}'
CALLED_F, CALLED_G = ("f", '{"x": 1}'), ("g", "{}")
RULES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "a call": (f"<call>{F}</call>", "", [CALLED_F]),
    "white space inside the markers": (f"<call>\n{F}\n</call>\n", "", [CALLED_F]),
    "several calls": (f"<call>{F}</call>\n<call>{G}</call>", "", [CALLED_F, CALLED_G]),
    "a list of calls": (f"<call>[{F}, {G}]</call>", "", [CALLED_F, CALLED_G]),
    "text around calls": (f"One <call>{F}</call>two <call>{G}</call>three", "One two three", [CALLED_F, CALLED_G]),
    "no end marker": (f"<call>{F}", "", [CALLED_F]),
    "no end marker before the next call": (f"<call>{F}\n<call>{G}", "", [CALLED_F, CALLED_G]),
    "a brace too many": (f"<call>{F}}}</call>two", "two", [CALLED_F]),
    "a brace missing": (f"<call>{F[:-1]}</call><call>{G}</call>", "", [CALLED_F, CALLED_G]),
    "arguments before the name": ('<call>{"arguments": {"x": 1}, "name": "f"}</call>', "", [CALLED_F]),
    "a name in the arguments": ('<call>{"name": "f", "arguments": {"name": "g"}}</call>', "", [("f", '{"name": "g"}')]),
    "no arguments": ('<call>{"name": "f"}</call>', "", [("f", "{}")]),
    "no arguments in a list": (f'<call>[{F}, {{"name": "g"}}]</call>', "", [CALLED_F, CALLED_G]),
    "an end marker in a string": (
        '<call>{"name": "f", "arguments": {"x": "</call>"}}</call>',
        "",
        [("f", '{"x": "</call>"}')],
    ),
    "a line break in a string": ('<call>{"name": "f", "arguments": {"x": "\n"}}</call>', "", [("f", '{"x": "\\n"}')]),
    "half of a surrogate pair": (
        r'<call>{"name": "f", "arguments": {"x": "\ud83d"}}</call>',
        "",
        [("f", r'{"x": "\ud83d"}')],
    ),
    "a marker that is a word": ("Write <call> and so on.", "Write <call> and so on.", []),
    "JSON that is no call": ('<call>{"x": 1}</call>', '<call>{"x": 1}</call>', []),
    "a name nobody has": ('<call>{"name": "h"}</call>', '<call>{"name": "h"}</call>', []),
    "what is ignored": (f"<answer>One <call>{F}</call>", "One ", [CALLED_F]),
    "nothing but text": ("1 < 2 {x} <cal", "1 < 2 {x} <cal", []),
}
BLOCK_RULES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "a bare list": (f"\n[{F}, {G}]", "", [CALLED_F, CALLED_G]),
    "a bare list of something else": ("[1, 2] are two.", "[1, 2] are two.", []),
    "a list later on is text": (f"See [{F}]", f"See [{F}]", []),
    "a block": (f"See\n```json\n[{F}]\n```", "See\n", [CALLED_F]),
    "a block without its language": (f"```\n{F}\n``` so", " so", [CALLED_F]),
    "a block of something else": ("```python\n{}\n```", "```python\n{}\n```", []),
    "a block of other JSON": ('```json\n{"x": [1]}\n```', '```json\n{"x": [1]}\n```', []),
}
OBJECT_RULES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "objects with a separator": (f"{F}; {G};{F}", "", [CALLED_F, CALLED_G, CALLED_F]),
    "an object after its tag": (f"<tag>{F}", "", [CALLED_F]),
    "an object that is no call": ('{"x": 1} is an object.', '{"x": 1} is an object.', []),
    "a brace that begins no object": ("{braces} are text", "{braces} are text", []),
    "an object later on is text": (f"See {F}", f"See {F}", []),
}
EVERY = [
    *((TAGS, *row) for row in RULES.values()),
    *((BLOCKS, *row) for row in BLOCK_RULES.values()),
    *((OBJECTS, *row) for row in OBJECT_RULES.values()),
]
IDS = [*RULES, *BLOCK_RULES, *OBJECT_RULES]


@pytest.mark.parametrize(("markers", "text", "content", "calls"), EVERY, ids=IDS)
def test_what_it_means(markers: Markers, text: str, content: str, calls: list[tuple[str, str]]) -> None:
    assert read(text, range(1, len(text)), markers=markers) == (content, calls, bool(calls))


@pytest.mark.parametrize(("markers", "text", "content", "calls"), EVERY, ids=IDS)
def test_pieces_change_nothing(markers: Markers, text: str, content: str, calls: list[tuple[str, str]]) -> None:
    seeded = random.Random(text)
    for _ in range(40):
        cuts = sorted(seeded.sample(range(1, len(text)), min(len(text) - 1, seeded.randint(0, 12))))
        assert read(text, cuts, markers=markers) == (content, calls, bool(calls)), cuts


PYTHON_RULES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "calls": ("[f(x=1), g()]", "", [("f", '{"x": 1}'), ("g", "{}")]),
    "calls between markers": ("One <calls>[f(x=1)]</calls> two", "One  two", [("f", '{"x": 1}')]),
    "brackets and quotes in strings": (
        """[f(x='a)]"}', y=["it's", {"k": "(\\n"}])]""",
        "",
        [("f", json.dumps({"x": 'a)]"}', "y": ["it's", {"k": "(\n"}]}))],
    ),
    "numbers": ("[f(x=-1.5e-3, y=[12, -3], z=None)]", "", [("f", '{"x": -0.0015, "y": [12, -3], "z": null}')]),
    "escapes": (r"[f(x='\x41\u00e9\U0001f600 z')]", "", [("f", json.dumps({"x": "A\xe9\U0001f600 z"}))]),
    "a list that is no call": ("[x] and [1]", "[x] and [1]", []),
    "a note in brackets": ("[It's (so)] and on", "[It's (so)] and on", []),
}


@pytest.mark.parametrize("rule", PYTHON_RULES)
def test_python_calls_mean_the_same_in_any_pieces(rule: str) -> None:
    text, content, calls = PYTHON_RULES[rule]
    seeded = random.Random(text)
    for _ in range(40):
        cuts = sorted(seeded.sample(range(1, len(text)), min(len(text) - 1, seeded.randint(0, 12))))
        assert read(text, cuts, markers=PYTHON) == (content, calls, bool(calls)), cuts
    assert read(text, range(1, len(text)), markers=PYTHON) == (content, calls, bool(calls))


@pytest.mark.parametrize("rule", [rule for rule, (_, content, _) in PYTHON_RULES.items() if not content])
def test_a_python_call_cut_anywhere_is_a_beginning_of_it(rule: str) -> None:
    text, _, whole = PYTHON_RULES[rule]
    for length in range(1, len(text) - 2):
        _, calls, _ = read(text[:length], range(1, length), markers=PYTHON, cut=True)
        for (name, arguments), (full_name, full_arguments) in zip(calls, whole, strict=False):
            assert name == full_name
            assert full_arguments.startswith(arguments)
        if len(calls) == len(whole):
            assert not is_json_object(calls[-1][1]), text[:length]


LONG_LIST = '<call>[{"name": "f", "arguments": {"x": ["a\\n", {"y": 1.5}], "z": null}}, {"name": "g", "arguments": {}}]'


@pytest.mark.parametrize("text", [LONG_LIST, f"<call>{F}</call>", '<call>{"arguments": {"x": [1]}, "name": "f"}'])
def test_a_call_cut_anywhere_is_a_beginning_of_it_and_no_text(text: str) -> None:
    _, whole, _ = read(text)
    for length in range(len("<call>"), len(text)):
        content, calls, _ = read(text[:length], range(1, length), cut=True)
        assert content == ""
        assert len(calls) <= len(whole)
        for (name, arguments), (full_name, full_arguments) in zip(calls, whole, strict=False):
            assert name == full_name
            assert full_arguments.startswith(arguments)
            if is_json_object(arguments):
                assert full_arguments in text[:length], "it looks whole, and is not"


@pytest.mark.parametrize(
    ("text", "markers", "content"),
    [
        ("<call>", TAGS, ""),
        ('<call>{"na', TAGS, ""),
        ("Well <", TAGS, "Well <"),
        ("```json\n", BLOCKS, "```json\n"),
        ('```json\n{"a": ', BLOCKS, '```json\n{"a": '),
        ("[1, 2", BLOCKS, "[1, 2"),
    ],
)
def test_markup_cut_before_a_name_is_text_only_where_it_may_mean_something_else(
    text: str, markers: Markers, content: str
) -> None:
    assert read(text, range(1, len(text)), markers=markers, cut=True) == (content, [], False)


def test_a_call_cut_after_its_name_is_open() -> None:
    assert read('<call>{"name": "f", "argum', cut=True) == ("", [("f", "{")], False)


def test_long_arguments_are_not_parsed_again_for_every_token() -> None:
    parsed = []

    def parse(json_text: str) -> Sequence[Any]:
        parsed.append(len(json_text))
        return strict_parse(json_text)

    text = '{"name": "f", "arguments": {"x": "' + "words " * 20_000 + '"}}'
    reader = Segments(new_sink(), TAGS, parse, NAMES)
    for start in range(0, len(text), 6):
        reader.feed(("<call>" if start == 0 else "") + text[start : start + 6], None)
    assert sum(parsed) < 100 * len(text)


@pytest.mark.parametrize("value", VALUES)
def test_every_beginning_of_a_value_can_be_completed(value: str) -> None:
    scanner = ValueScanner()
    for position, character in enumerate(value):
        assert scanner.takes(character)
        completed = json.loads(value[: scanner.safe] + scanner.closers)
        said = json.dumps(completed)[: -len(scanner.closers) or None]
        assert json.dumps(json.loads(value)).startswith(said), value[: position + 1]
    assert scanner.done
    assert scanner.closers == ""


def test_a_value_ends_where_it_ends() -> None:
    for text, own in (('{"a": "}"}} x', '{"a": "}"}'), ("12, 3", "12"), ('"a" b', '"a"'), ("null]", "null")):
        assert belonging(ValueScanner(), text) == own
