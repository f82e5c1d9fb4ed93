# SPDX-License-Identifier: MIT
"""What core takes for a tool call in plain text."""

from __future__ import annotations

import pytest

from tests.localai_core.json_calls import calls_in, calls_so_far, without_tagged_calls
from tests.localai_core.shown import Call

PERSON = '{"name": "Ada Lovelace", "born": 1815}'
HERMES = '<tool_call>\n{"name": "f", "arguments": {"city": "Paris"}}\n</tool_call>'
CODER = "<tool_call>\n<function=f>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
F = Call("", "f", '{"city":"Paris"}')

WHOLE: list[tuple[str, str, list[Call]]] = [
    ("prose", "Hello {there} [you]", []),
    ("a record with a name has no arguments", PERSON, []),
    ("an object with both is a call", '{"name": "Ada", "arguments": "none"}', [Call("", "Ada", "none")]),
    ("anywhere in a text", 'So: {"name": "f", "arguments": {"city": "Paris"}}. Fine?', [F]),
    ("a Hermes call", HERMES, [F]),
    ("two of them", f"{HERMES}\n{HERMES}", [F, F]),
    ("a call in tags", CODER, [F]),
    ("JSON in tags", 'Well <function=f>{"city": "Paris"}</function>', [F]),
    ("an array", '[{"name": "f", "arguments": {"city": "Paris"}}, 1]', [F]),
    ("an object that was cut", '{"name": "f", "arguments": {"ci', []),
]


@pytest.mark.parametrize(("text", "calls"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE])
def test_a_whole_answer(text: str, calls: list[Call]) -> None:
    assert calls_in(text) == calls


ADA = Call("", "Ada Lovelace", "{}")
SO_FAR: list[tuple[str, str, list[Call]]] = [
    ("prose", "Hello", []),
    ("a record with a name is a call", PERSON, [ADA]),
    ("as soon as the name is whole", '{"name": "Ada Lovelace"', [ADA]),
    ("and not before", '{"name": "Ada Love', []),
    ("nor with half a key", '{"na', []),
    ("in a text, when it is closed", f"Her record: {PERSON}", [ADA]),
    ("and not before", f"Her record: {PERSON[:-1]}", []),
    ("none behind an object without a name", '{"a": 1} {"name": "b"}', []),
    ("a Hermes call", HERMES, [F]),
    ("of a call in tags the name alone", CODER[:30], [Call("", "f", "")]),
]


@pytest.mark.parametrize(("text", "calls"), [row[1:] for row in SO_FAR], ids=[row[0] for row in SO_FAR])
def test_an_answer_so_far(text: str, calls: list[Call]) -> None:
    assert calls_so_far(text) == calls


@pytest.mark.parametrize(
    ("text", "rest"), [(f"Well.\n{HERMES}\n", "Well."), (f"a {CODER} b", "a b"), (f" {PERSON} ", PERSON)]
)
def test_the_text_around_calls(text: str, rest: str) -> None:
    assert without_tagged_calls(text) == rest
