# SPDX-License-Identifier: MIT
"""What a chat without streaming shows: a row per rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localai_proto import backend_pb2 as pb
from tests.localai_core.ask import Ask
from tests.localai_core.backends import PlayedBackend
from tests.localai_core.chat import chat
from tests.localai_core.shown import REQUEST_ID, Call, Shown
from tests.localai_core.written import PLAIN, TOOLS, both, reply

ADA = '{"name": "Ada", "arguments": "none"}'
CALL = Call("i", "f", "{}")


def show(ask: Ask, answer: pb.Reply) -> Shown:
    return chat(PlayedBackend([answer]), ask)


ROWS: list[tuple[str, Ask, pb.Reply, tuple[str, str, list[Call]]]] = [
    ("the message", PLAIN, reply("a"), ("a", "", [])),
    ("deltas win over it", PLAIN, reply("a", "b", reasoning="r"), ("b", "r", [])),
    ("tags in the message", PLAIN, reply("<think>r</think>a"), ("a", "r", [])),
    ("tags in a delta, if no delta has reasoning", PLAIN, both("<think>r</think>a"), ("a", "r", [])),
    (
        "if one has, tags are text",
        PLAIN,
        reply(content="<think>a</think>", reasoning="r"),
        ("<think>a</think>", "r", []),
    ),
    ("a call", TOOLS, reply(calls=[(0, "i", "f", "{}")]), ("", "", [CALL])),
    (
        "text and reasoning beside a call stay",
        TOOLS,
        reply("a", "a", reasoning="r", calls=[(0, "i", "f", "{}")]),
        ("a", "r", [CALL]),
    ),
    ("a record with a name is text", TOOLS, both('{"name": "Ada"}'), ('{"name": "Ada"}', "", [])),
    ("with arguments it is a call as well", TOOLS, both(ADA), (ADA, "", [Call(REQUEST_ID, "Ada", "none")])),
    ("but not where it is in a delta alone", TOOLS, reply(content=ADA), (ADA, "", [])),
    ("nor without tools", PLAIN, both(ADA), (ADA, "", [])),
    (
        "calls without an id all have the same",
        TOOLS,
        reply(calls=[(0, "", "f", "{}"), (1, "", "g", "{}")]),
        ("", "", [Call(REQUEST_ID, "f", "{}"), Call(REQUEST_ID, "g", "{}")]),
    ),
    ("with tools, reasoning without content is lost", TOOLS, reply(reasoning="r"), ("", "", [])),
    ("a line break as content keeps it", TOOLS, reply(content="\n", reasoning="r"), ("\n", "r", [])),
    (
        "the no-action function's message is text",
        TOOLS,
        reply('{"name": "answer", "arguments": {"message": "a"}}'),
        ("a", "", []),
    ),
]


@pytest.mark.parametrize(("ask", "answer", "parts"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_messages(ask: Ask, answer: pb.Reply, parts: tuple[str, str, list[Call]]) -> None:
    shown = show(ask, answer)
    assert (shown.text, shown.reasoning, shown.calls) == parts


def test_finish_reasons() -> None:
    limited = replace(PLAIN, max_tokens=5)
    assert show(limited, reply("a", tokens=4)).finish_reason == "stop"
    assert show(limited, reply("a", tokens=5)).finish_reason == "length"
    assert show(replace(TOOLS, max_tokens=5), reply(calls=[(0, "i", "f", "")], tokens=5)).finish_reason == "tool_calls"


def test_log_probabilities_are_shown_without_tools_only() -> None:
    answer = reply("a", "a", logprobs=b'{"content":[]}')
    assert show(PLAIN, answer).logprobs == {"content": []}
    assert show(TOOLS, answer).logprobs is None


def test_reasoning_alone_is_asked_for_again() -> None:
    assert show(PLAIN, reply(reasoning="r", tokens=2)).attempts == 6
    assert show(replace(PLAIN, max_tokens=2), reply(reasoning="r", tokens=2)).attempts == 1
    assert show(PLAIN, reply(content="\n", reasoning="r", tokens=2)).attempts == 1
