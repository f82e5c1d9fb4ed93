# SPDX-License-Identifier: MIT
"""What a streamed chat shows: a row per rule of core's two workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localai_proto import backend_pb2 as pb
from tests.localai_core.ask import Ask
from tests.localai_core.backends import PlayedBackend
from tests.localai_core.chat_stream import chat_stream
from tests.localai_core.shown import REQUEST_ID, Call, Chunk, Shown
from tests.localai_core.written import PLAIN, TOOLS, both, reply

THOUGHT = reply(reasoning="r")
CALL = reply(calls=[(0, "i", "f", "{}")])
SHOWN_CALL: list[Chunk] = [("call", "f"), ("arguments", "{}")]


def show(ask: Ask, *replies: pb.Reply) -> Shown:
    return chat_stream(PlayedBackend(replies), ask)


ROWS: list[tuple[str, Ask, list[pb.Reply], list[Chunk]]] = [
    ("text is that of the message", PLAIN, [both("a"), both("b"), reply()], [("text", "a"), ("text", "b")]),
    ("content of deltas alone is not shown", PLAIN, [reply(content="a"), reply("b")], [("text", "b")]),
    (
        "until a delta had reasoning: then it is",
        PLAIN,
        [THOUGHT, reply(content="a"), both("b")],
        [("reasoning", "r"), ("text", "a"), ("text", "b")],
    ),
    (
        "tags in the message are reasoning",
        PLAIN,
        [reply("<think>"), reply("r"), reply("</think>"), reply("a")],
        [("reasoning", "r"), ("text", "a")],
    ),
    (
        "an answer is reasoning where the prompt holds an open tag",
        replace(PLAIN, prompt="user: hello <think>"),
        [both("a")],
        [("reasoning", "a")],
    ),
    (
        "with tools, deltas alone are enough",
        TOOLS,
        [reply(content="a"), reply(content="b")],
        [("text", "a"), ("text", "b")],
    ),
    (
        "with tools, content of a delta ends the trust in the message",
        TOOLS,
        [reply("a"), reply(content="b"), reply("c")],
        [("text", "a"), ("text", "b")],
    ),
    ("calls come at the end, name then arguments", TOOLS, [CALL, reply(content="a")], [("text", "a"), *SHOWN_CALL]),
    (
        "a call is put together from its deltas",
        TOOLS,
        [reply(calls=[(0, "i", "f", "")]), reply(calls=[(0, "", "", "{")]), reply(calls=[(0, "", "", "}")])],
        SHOWN_CALL,
    ),
    (
        "JSON with a name in the message is a call at once, and ends the text",
        TOOLS,
        [both('{"name": "Ada"'), both(', "born": 1815}')],
        [("text", '{"name": "Ada"'), ("call", "Ada"), ("arguments", "{}")],
    ),
    (
        "in deltas alone it is text",
        TOOLS,
        [reply(content='{"name": "Ada"'), reply(content="}")],
        [("text", '{"name": "Ada"'), ("text", "}")],
    ),
    (
        "after a call of a delta nobody looks into the message",
        TOOLS,
        [CALL, reply('{"name": "Ada"}')],
        [("text", '{"name": "Ada"}'), *SHOWN_CALL],
    ),
    (
        "a call in the message and in a delta is one call",
        TOOLS,
        [reply('{"name": "f", "arguments": {}}'), CALL],
        [("text", '{"name": "f", "arguments": {}}'), ("call", "f"), ("arguments", "{}")],
    ),
    (
        "what the no-action function says is text",
        TOOLS,
        [reply(calls=[(0, "i", "answer", '{"message": "a"}')])],
        [("text", "a")],
    ),
    ("with tools and nothing at all there is an empty text", TOOLS, [reply(tokens=1)], [("text", "")]),
]


@pytest.mark.parametrize(("ask", "replies", "chunks"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_chunks(ask: Ask, replies: list[pb.Reply], chunks: list[Chunk]) -> None:
    assert show(ask, *replies).chunks == chunks


def test_tools_with_the_choice_none_are_no_tools() -> None:
    assert show(replace(TOOLS, tool_choice="none"), both('{"name": "Ada"}')).text == '{"name": "Ada"}'


def test_calls_without_an_id_get_one_by_their_index() -> None:
    shown = show(TOOLS, reply(calls=[(0, "", "f", "{}"), (1, "", "g", "{}")]))
    assert shown.calls == [Call(f"{REQUEST_ID}-0", "f", "{}"), Call(f"{REQUEST_ID}-1", "g", "{}")]


FINISH: list[tuple[str, Ask, pb.Reply, str]] = [
    ("stop", replace(PLAIN, max_tokens=6), reply("a", tokens=5), "stop"),
    ("length", replace(PLAIN, max_tokens=5), reply("a", tokens=5), "length"),
    ("no limit, no length", PLAIN, reply("a", tokens=4096), "stop"),
    ("calls", replace(TOOLS, max_tokens=5), reply(calls=[(0, "i", "f", "{}")], tokens=5), "tool_calls"),
]


@pytest.mark.parametrize(("ask", "last", "reason"), [row[1:] for row in FINISH], ids=[row[0] for row in FINISH])
def test_finish_reasons(ask: Ask, last: pb.Reply, reason: str) -> None:
    assert show(ask, last).finish_reason == reason


@pytest.mark.parametrize("ask", [PLAIN, TOOLS], ids=["plain", "with tools"])
def test_reasoning_alone_is_asked_for_again_and_shown_each_time(ask: Ask) -> None:
    shown = show(ask, THOUGHT, reply(tokens=2))
    assert (shown.attempts, shown.reasoning, shown.text) == (6, "rrrrrr", "")
    shown = show(ask, THOUGHT, reply(content="\n"), reply(tokens=2))
    assert (shown.attempts, shown.reasoning, shown.text) == (1, "r", "\n")
    shown = show(replace(ask, max_tokens=2), THOUGHT, reply(tokens=2))
    assert (shown.attempts, shown.reasoning, shown.text, shown.finish_reason) == (1, "r", "", "length")
