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
from vllm_nnrp.grpc_door.encode import encode_answer, encode_events, encode_final, encode_logprobs
from vllm_nnrp.wire_floats import float32

USAGE = Usage(prompt_tokens=3, completion_tokens=2)
ERROR = BackendFailure("x").info()
START = ToolCallStarted(0, 0, "i", "c", "f")
ARGS = ToolCallDelta(0, 0, "i", "c", '{"a":')
MORE = ToolCallDelta(0, 0, "i", "c", "1}")
OTHER = ToolCallStarted(0, 1, "j", "d", "g")


def reply(message: bytes, **delta: Any) -> pb.Reply:
    return pb.Reply(message=message, tokens=2, prompt_tokens=3, chat_deltas=[pb.ChatDelta(**delta)])


def tool(index: int = 0, **fields: str) -> pb.ToolCallDelta:
    return pb.ToolCallDelta(index=index, **fields)


ROWS: list[tuple[str, list[StreamEvent], bool, list[pb.Reply]]] = [
    ("text is message and delta", [TextDelta(0, "é")], True, [reply("é".encode(), content="é")]),
    ("with tools active message is empty", [TextDelta(0, "a")], False, [reply(b"", content="a")]),
    ("reasoning never is in message", [ReasoningDelta(0, "r")], True, [reply(b"", reasoning_content="r")]),
    (
        "reasoning and text of one step are two replies",
        [ReasoningDelta(0, "r"), TextDelta(0, "a")],
        True,
        [reply(b"", reasoning_content="r"), reply(b"a", content="a")],
    ),
    ("text of one step is one reply", [TextDelta(0, "a"), TextDelta(0, "b")], True, [reply(b"ab", content="ab")]),
    ("a call starts with id and name", [START], False, [reply(b"", tool_calls=[tool(id="c", name="f")])]),
    (
        "a start and its first arguments are one delta",
        [START, ARGS, MORE],
        False,
        [reply(b"", tool_calls=[tool(id="c", name="f", arguments='{"a":1}')])],
    ),
    ("later deltas have arguments only", [MORE], False, [reply(b"", tool_calls=[tool(arguments="1}")])]),
    (
        "the end of one call and the start of the next",
        [MORE, ToolCallCompleted(0, 0, "i", "c", "f", '{"a":1}'), OTHER],
        False,
        [reply(b"", tool_calls=[tool(arguments="1}")]), reply(b"", tool_calls=[tool(1, id="d", name="g")])],
    ),
    ("what only ends says nothing", [ToolCallFailed(0, 0, "i", "c", ERROR), UsageReport(USAGE)], False, []),
    (
        "U+FFFD stalls core's text for good: not in message",
        [TextDelta(0, "a\ufffdb")],
        True,
        [reply(b"a?b", content="a\ufffdb")],
    ),
    ("half a surrogate pair is no UTF-8", [TextDelta(0, "a\ud83d")], True, [reply(b"a?", content="a?")]),
]


@pytest.mark.parametrize(("events", "in_message", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_events(events: list[StreamEvent], in_message: bool, expected: list[pb.Reply]) -> None:
    assert encode_events(events, USAGE, text_in_message=in_message) == expected


def test_the_final_reply_has_counts_and_times_and_no_text() -> None:
    final = encode_final(USAGE, Timings(1.0, 0.25, 0.5), ())
    assert final == pb.Reply(tokens=2, prompt_tokens=3, timing_prompt_processing=250.0, timing_token_generation=500.0)
    assert encode_final(USAGE, None, ()) == pb.Reply(tokens=2, prompt_tokens=3)


def test_a_whole_answer() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": "a\ufffd", "reasoning": "r", "tool_calls": calls}
    answer = encode_answer(Completed({"choices": [{"message": message}]}, USAGE), None, ())
    assert answer == reply(
        b"a?", content="a\ufffd", reasoning_content="r", tool_calls=[tool(id="c", name="f", arguments="{}")]
    )


def test_an_answer_of_calls_alone_has_an_empty_message() -> None:
    message = {"role": "assistant", "content": None}
    assert encode_answer(Completed({"choices": [{"message": message}]}, USAGE), None, ()).message == b""


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
