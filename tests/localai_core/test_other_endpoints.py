# SPDX-License-Identifier: MIT
"""What the other endpoints show of the same replies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localai_proto import backend_pb2 as pb
from tests.localai_core.anthropic import anthropic, anthropic_stream
from tests.localai_core.ask import Ask
from tests.localai_core.attempts import Backend
from tests.localai_core.backends import PlayedBackend
from tests.localai_core.completions import completion, completion_stream, ollama, ollama_stream
from tests.localai_core.realtime import realtime
from tests.localai_core.replies import Usage
from tests.localai_core.responses import responses, responses_stream
from tests.localai_core.shown import Chunk, Shown
from tests.localai_core.written import PLAIN, TOOLS, both, reply

THOUGHT = reply(reasoning="r")
CALL = reply(calls=[(0, "i", "f", "{}")])
SHOWN_CALL: list[Chunk] = [("call", "f"), ("arguments", "{}")]
ADA = '{"name": "Ada", "arguments": "none"}'

Endpoint = Callable[[Backend, Ask], Shown]


def streamed(backend: Backend, ask: Ask) -> Shown:
    return responses_stream(backend, ask).streamed


def completed(backend: Backend, ask: Ask) -> Shown:
    return responses_stream(backend, ask).completed


STREAMS: list[tuple[str, Endpoint, Ask, list[pb.Reply], list[Chunk]]] = [
    ("completions: the message alone", completion_stream, PLAIN, [reply(content="a"), both("b")], [("text", "b")]),
    ("Ollama: the message alone", ollama_stream, TOOLS, [THOUGHT, both("b")], [("text", "b")]),
    (
        "Anthropic: the message as it comes",
        anthropic_stream,
        PLAIN,
        [both("a"), both("b")],
        [("text", "a"), ("text", "b")],
    ),
    (
        "Anthropic: else the deltas at the end",
        anthropic_stream,
        TOOLS,
        [reply(content="a"), reply(content="b")],
        [("text", "ab")],
    ),
    ("Anthropic: reasoning before calls", anthropic_stream, TOOLS, [THOUGHT, CALL], [("reasoning", "r"), *SHOWN_CALL]),
    ("Anthropic: and not before text", anthropic_stream, TOOLS, [THOUGHT, both("a")], [("text", "a")]),
    ("Anthropic: text before calls", anthropic_stream, TOOLS, [reply(content="a"), CALL], [("text", "a"), *SHOWN_CALL]),
    (
        "Anthropic: a record with a name is text",
        anthropic_stream,
        TOOLS,
        [both('{"name": "Ada"}')],
        [("text", '{"name": "Ada"}')],
    ),
    (
        "Anthropic: with arguments it is a call",
        anthropic_stream,
        TOOLS,
        [both(ADA[:-1]), both("}")],
        [("text", ADA[:-1]), ("call", "Ada"), ("arguments", "none")],
    ),
    (
        "realtime: the deltas of a reply",
        realtime,
        PLAIN,
        [reply("a", "b"), THOUGHT, reply("c")],
        [("text", "b"), ("text", "c")],
    ),
    (
        "realtime: text that is repeated is spoken twice",
        realtime,
        PLAIN,
        [both("a"), reply(content="a")],
        [("text", "a")] * 2,
    ),
    ("realtime: calls at the end", realtime, TOOLS, [CALL, reply(content="a")], [("text", "a"), *SHOWN_CALL]),
    ("responses: deltas", streamed, TOOLS, [THOUGHT, reply(content="a"), CALL], [("text", "a"), *SHOWN_CALL]),
    (
        "responses: reasoning by tags",
        streamed,
        PLAIN,
        [reply("<think>r"), reply("</think>a")],
        [("reasoning", "r"), ("text", "a")],
    ),
    (
        "responses: a record with a name is a call, and its text goes on",
        streamed,
        TOOLS,
        [both('{"name": "Ada"'), both(', "born": 1815'), both("}")],
        [("call", "Ada"), ("arguments", "{}"), ("text", ', "born": 1815'), ("text", "}")],
    ),
    (
        "responses: any object costs the text of its step",
        streamed,
        TOOLS,
        [both('{"a": 1'), both("}")],
        [("text", "}")],
    ),
]


@pytest.mark.parametrize(
    ("endpoint", "ask", "replies", "chunks"), [row[1:] for row in STREAMS], ids=[row[0] for row in STREAMS]
)
def test_streams(endpoint: Endpoint, ask: Ask, replies: list[pb.Reply], chunks: list[Chunk]) -> None:
    assert endpoint(PlayedBackend(replies), ask).chunks == chunks


Parts = tuple[str, str, list[str]]  # text, reasoning, names of calls
WHOLE: list[tuple[str, Endpoint, Ask, list[pb.Reply], Parts]] = [
    ("completions: the message", completion, PLAIN, [reply("a", "b")], ("a", "", [])),
    ("Ollama: the message", ollama, TOOLS, [reply("a", "b", reasoning="r")], ("a", "", [])),
    ("Anthropic: text from the message", anthropic, PLAIN, [reply("a", "b", reasoning="r")], ("a", "r", [])),
    ("Anthropic: that of deltas alone is lost", anthropic, PLAIN, [reply(content="a")], ("", "", [])),
    (
        "Anthropic: no text beside calls",
        anthropic,
        TOOLS,
        [reply("a", "a", calls=[(0, "i", "f", "")])],
        ("", "", ["f"]),
    ),
    ("Anthropic: a call that nobody made", anthropic, TOOLS, [both(ADA)], ("", "", ["Ada"])),
    ("responses: the message, split by tags", responses, PLAIN, [reply("<think>r</think>a", "b")], ("a", "r", [])),
    ("responses: reasoning of deltas is lost", responses, PLAIN, [reply("a", "a", reasoning="r")], ("a", "", [])),
    ("responses: calls", responses, TOOLS, [reply("a", "a", calls=[(0, "i", "f", "{}")])], ("a", "", ["f"])),
    ("responses, streamed: the whole answer", completed, TOOLS, [both("a"), both("b")], ("ab", "", [])),
    ("responses, streamed: without a message it is empty", completed, TOOLS, [reply(content="a")], ("", "", [])),
    ("unless a delta had reasoning", completed, TOOLS, [THOUGHT, reply(content="a")], ("a", "", [])),
    ("without tools, too", completed, PLAIN, [reply(content="a")], ("", "", [])),
]


@pytest.mark.parametrize(
    ("endpoint", "ask", "replies", "parts"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE]
)
def test_whole_answers(endpoint: Endpoint, ask: Ask, replies: list[pb.Reply], parts: Parts) -> None:
    shown = endpoint(PlayedBackend(replies), ask)
    assert (shown.text, shown.reasoning, [call.name for call in shown.calls]) == parts


def test_completions_without_streaming_show_no_counts() -> None:
    assert completion(PlayedBackend([reply("a", tokens=5)]), PLAIN).usage == Usage()
    assert completion_stream(PlayedBackend([reply("a", tokens=5)]), PLAIN).usage == Usage(3, 5)


def test_thinking_blocks_are_for_those_who_asked_for_them() -> None:
    assert anthropic(PlayedBackend([reply("a", reasoning="r")]), PLAIN, thinking=False).reasoning == ""
    assert anthropic_stream(PlayedBackend([THOUGHT, CALL]), TOOLS, thinking=False).reasoning == ""


def test_a_spoken_answer_is_asked_for_once() -> None:
    backend = PlayedBackend([THOUGHT])
    assert (realtime(backend, PLAIN).text, backend.calls) == ("", 1)
