# SPDX-License-Identifier: MIT
"""How chat deltas are put together: a row per rule."""

from __future__ import annotations

import pytest

from localai_proto import backend_pb2 as pb
from tests.localai_core.deltas import calls_of, content_of, reasoning_of
from tests.localai_core.shown import Call


def part(index: int = 0, **fields: str) -> pb.ChatDelta:
    return pb.ChatDelta(tool_calls=[pb.ToolCallDelta(index=index, **fields)])


ROWS: list[tuple[str, list[pb.ChatDelta], list[Call]]] = [
    ("nothing", [], []),
    (
        "arguments are joined",
        [part(id="i", name="f"), part(arguments="{"), part(arguments="}")],
        [Call("i", "f", "{}")],
    ),
    ("the last name and id win", [part(id="i", name="f"), part(id="j", name="g")], [Call("j", "g", "")]),
    ("empty ones do not", [part(id="i", name="f"), part(arguments="{}")], [Call("i", "f", "{}")]),
    (
        "by index, whatever the order and the gaps",
        [part(4, name="h"), part(1, name="g"), part(4, arguments="{}")],
        [Call("", "g", ""), Call("", "h", "{}")],
    ),
    ("one call at two indices is two calls", [part(0, name="f"), part(1, name="f")], [Call("", "f", "")] * 2),
    ("arguments sent twice are there twice", [part(arguments="{}"), part(arguments="{}")], [Call("", "", "{}{}")]),
]


@pytest.mark.parametrize(("deltas", "calls"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_calls(deltas: list[pb.ChatDelta], calls: list[Call]) -> None:
    assert calls_of(deltas) == calls


def test_texts_are_joined_whatever_they_repeat() -> None:
    deltas = [pb.ChatDelta(content="a", reasoning_content="r"), pb.ChatDelta(content="a", reasoning_content="r")]
    assert (content_of(deltas), reasoning_of(deltas)) == ("aa", "rr")
