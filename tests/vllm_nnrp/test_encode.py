# SPDX-License-Identifier: MIT
"""Events to replies: a row per rule of core's consumers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from chatdelta import (
    BackendFailure,
    Completed,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Timings,
    TokenLogprob,
    ToolCallCompleted,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallStarted,
    Usage,
    UsageReport,
)
from localai_proto import backend_pb2 as pb
from vllm_nnrp.grpc_door.encode import TextIn, encode_answer, encode_end, encode_events, encode_logprobs
from vllm_nnrp.wire_floats import float32

USAGE = Usage(prompt_tokens=3, completion_tokens=2)
ERROR = BackendFailure("x").info()
START = ToolCallStarted(0, 0, "i", "c", "f")
ARGS = ToolCallDelta(0, 0, "i", "c", '{"a":')
MORE = ToolCallDelta(0, 0, "i", "c", "1}")
OTHER = ToolCallStarted(0, 1, "j", "d", "g")


def reply(message: bytes, **delta: Any) -> pb.Reply:
    return pb.Reply(message=message, tokens=2, prompt_tokens=3, chat_deltas=[pb.ChatDelta(**delta)])


def replied(message: bytes, *deltas: dict[str, Any]) -> pb.Reply:
    return pb.Reply(message=message, tokens=2, prompt_tokens=3, chat_deltas=[pb.ChatDelta(**delta) for delta in deltas])


def tool(index: int = 0, **fields: str) -> pb.ToolCallDelta:
    return pb.ToolCallDelta(index=index, **fields)


BOTH, DELTAS, MESSAGE = TextIn.BOTH, TextIn.DELTAS, TextIn.MESSAGE
ROWS: list[tuple[str, list[StreamEvent], TextIn, list[pb.Reply]]] = [
    ("text is message and delta", [TextDelta(0, "é")], BOTH, [reply("é".encode(), content="é")]),
    ("with tools active message is empty", [TextDelta(0, "a")], DELTAS, [reply(b"", content="a")]),
    (
        "text that core parses is in message alone",
        [TextDelta(0, "a")],
        MESSAGE,
        [pb.Reply(message=b"a", tokens=2, prompt_tokens=3)],
    ),
    ("reasoning never is in message", [ReasoningDelta(0, "r")], BOTH, [reply(b"", reasoning_content="r")]),
    (
        "reasoning and text of one step are two replies",
        [ReasoningDelta(0, "r"), TextDelta(0, "a")],
        BOTH,
        [reply(b"", reasoning_content="r"), reply(b"a", content="a")],
    ),
    (
        "texts that are there at once are one reply, each its delta",
        [TextDelta(0, "a"), TextDelta(0, "b"), TextDelta(0, "c")],
        BOTH,
        [replied(b"abc", {"content": "a"}, {"content": "b"}, {"content": "c"})],
    ),
    (
        "so is reasoning, and the text behind it is the next",
        [ReasoningDelta(0, "r"), ReasoningDelta(0, "s"), TextDelta(0, "a")],
        DELTAS,
        [replied(b"", {"reasoning_content": "r"}, {"reasoning_content": "s"}), reply(b"", content="a")],
    ),
    (
        "of a prompt that core rendered, in message alone",
        [TextDelta(0, "a"), TextDelta(0, "b")],
        MESSAGE,
        [replied(b"ab")],
    ),
    ("a call starts with id and name", [START], DELTAS, [reply(b"", tool_calls=[tool(id="c", name="f")])]),
    (
        "a start and its first arguments are one delta",
        [START, ARGS, MORE],
        DELTAS,
        [reply(b"", tool_calls=[tool(id="c", name="f", arguments='{"a":1}')])],
    ),
    ("later deltas have arguments only", [MORE], DELTAS, [reply(b"", tool_calls=[tool(arguments="1}")])]),
    (
        "the end of one call and the start of the next",
        [MORE, ToolCallCompleted(0, 0, "i", "c", "f", '{"a":1}'), OTHER],
        DELTAS,
        [reply(b"", tool_calls=[tool(arguments="1}")]), reply(b"", tool_calls=[tool(1, id="d", name="g")])],
    ),
    ("what only ends says nothing", [ToolCallFailed(0, 0, "i", "c", ERROR), UsageReport(USAGE)], DELTAS, []),
    (
        "U+FFFD stalls core's text for good: not in message",
        [TextDelta(0, "a\ufffdb")],
        BOTH,
        [reply(b"a?b", content="a\ufffdb")],
    ),
    ("half a surrogate pair is no UTF-8", [TextDelta(0, "a\ud83d")], BOTH, [reply(b"a?", content="a?")]),
]


@pytest.mark.parametrize(("events", "text_in", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_events(events: list[StreamEvent], text_in: TextIn, expected: list[pb.Reply]) -> None:
    assert encode_events(events, USAGE, text_in=text_in) == expected


def completed(**message: Any) -> Completed:
    return Completed({"choices": [{"message": {"role": "assistant", "content": None, **message}}]}, USAGE)


def test_the_final_reply_has_counts_and_times_and_no_text() -> None:
    said = completed(content="a")
    (final,) = encode_end(said, Timings(1.0, 0.25, 0.5), (), max_tokens=None)
    assert final == pb.Reply(tokens=2, prompt_tokens=3, timing_prompt_processing=250.0, timing_token_generation=500.0)
    assert encode_end(said, None, (), max_tokens=None) == [pb.Reply(tokens=2, prompt_tokens=3)]


def answer_of(said: Completed, max_tokens: int | None = None, text_in: TextIn = DELTAS) -> pb.Reply:
    return encode_answer(said, None, (), text_in=text_in, max_tokens=max_tokens)


CALLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def test_a_whole_answer() -> None:
    said = completed(content="a\ufffd", reasoning="r", tool_calls=CALLS)
    assert answer_of(said) == reply(
        b"a?", content="a\ufffd", reasoning_content="r", tool_calls=[tool(id="c", name="f", arguments="{}")]
    )


def test_an_answer_that_core_parses_has_no_deltas() -> None:
    assert answer_of(completed(content="a"), text_in=MESSAGE) == pb.Reply(message=b"a", tokens=2, prompt_tokens=3)


def test_an_answer_of_calls_alone_has_an_empty_message() -> None:
    assert answer_of(completed(tool_calls=CALLS)).message == b""


ALONE: list[tuple[str, dict[str, Any], int | None, str]] = [
    ("reasoning alone gets a line break, or core asks for it again", {"reasoning": "r"}, None, "\n"),
    ("below the limit of tokens too", {"reasoning": "r"}, 3, "\n"),
    ("at the limit core knows", {"reasoning": "r"}, 2, ""),
    ("text is enough", {"reasoning": "r", "content": " "}, None, ""),
    ("so is a call", {"reasoning": "r", "tool_calls": CALLS}, None, ""),
    ("nothing at all is asked for again, and nobody sees it", {}, None, ""),
]


@pytest.mark.parametrize(("message", "max_tokens", "added"), [r[1:] for r in ALONE], ids=[r[0] for r in ALONE])
def test_what_is_added_to_an_answer(message: dict[str, Any], max_tokens: int | None, added: str) -> None:
    said = completed(**message)
    *before, _ = encode_end(said, None, (), max_tokens=max_tokens)
    assert before == ([reply(b"", content=added)] if added else [])
    answer = answer_of(said, max_tokens)
    assert answer.chat_deltas[0].content == added + message.get("content", "")
    assert answer.message == message.get("content", "").encode()


def test_logprobs() -> None:
    top = (TokenLogprob(7, "é", "é".encode(), -0.25), TokenLogprob(8, "x", b"x", -math.inf))
    encoded = encode_logprobs((TokenLogprob(7, "é", "é".encode(), -0.25, top), TokenLogprob(9, "", b"\xff", math.nan)))
    assert json.loads(encoded) == {
        "content": [
            {
                "id": 7,
                "token": "é",
                "bytes": [195, 169],
                "logprob": -0.25,
                "top_logprobs": [
                    {"id": 7, "token": "é", "bytes": [195, 169], "logprob": -0.25},
                    {"id": 8, "token": "x", "bytes": [120], "logprob": -9999.0},
                ],
            },
            {"id": 9, "token": "", "bytes": [255], "logprob": -9999.0, "top_logprobs": []},
        ]
    }


@pytest.mark.parametrize("value", [0.0, 0.1, 0.7, 0.9, 0.95, 1.1, 1.0, -0.5, 0.05, 0.123456, 2.0, 1e-5, 16777216.0])
def test_a_float32_is_read_as_it_was_written(value: float) -> None:
    assert float32(pb.PredictOptions(Temperature=value).Temperature) == value
