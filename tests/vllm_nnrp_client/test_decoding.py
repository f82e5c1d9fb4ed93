# SPDX-License-Identifier: MIT
"""What each wire says, as client events; and a question as what each wire wants."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nnrp.core import PayloadKind
from nnrp.runtime import ResultDropReasonCode

from chatdelta import BackendFailure, Completed, Failed
from chatdelta import Cancelled as ServerCancelled
from chatdelta import Usage as ServerUsage
from localai_proto import backend_pb2 as pb
from nnrp_openai.encoding import Times, encode_terminal
from vllm_nnrp.client.conversation import Conversation
from vllm_nnrp.client.events import (
    Cancelled,
    ClientEvent,
    Done,
    Ending,
    Error,
    Reasoning,
    Text,
    ToolCallArguments,
    ToolCallDone,
    ToolCallError,
    ToolCallStart,
    Usage,
)
from vllm_nnrp.client.grpc_client import ReplyDecoder, encode_question
from vllm_nnrp.client.nnrp_events import decode_drop, decode_partial, decode_result, encode_envelope

CALL = {"index": 0, "item_id": "i", "call_id": "c"}
PARTIALS: list[tuple[dict[str, Any], ClientEvent | None]] = [
    ({"type": "response.output_text.delta", "index": 0, "delta": "a"}, Text("a")),
    ({"type": "response.reasoning_text.delta", "index": 0, "delta": "a"}, Reasoning("a")),
    ({"type": "response.tool_call.started", **CALL, "name": "f"}, ToolCallStart(0, "c", "f")),
    ({"type": "response.tool_call.delta", **CALL, "arguments_delta": "{"}, ToolCallArguments(0, "{")),
    (
        {"type": "response.tool_call.completed", **CALL, "name": "f", "arguments": "{}"},
        ToolCallDone(0, "c", "f", "{}"),
    ),
    (
        {"type": "response.tool_call.error", **CALL, "error": {"type": "t", "code": "length", "message": "cut"}},
        ToolCallError(0, "c", "length", "cut"),
    ),
    ({"type": "response.usage", "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}}, Usage(3, 2)),
    ({"type": "response.cancelled", "reason": "x"}, None),  # the terminal frame says it
    ({"type": "response.diagnostics", "extension": "vllm.diagnostics"}, None),
]


@pytest.mark.parametrize(("event", "expected"), PARTIALS, ids=[event["type"] for event, _ in PARTIALS])
def test_a_partial_result(event: dict[str, Any], expected: ClientEvent | None) -> None:
    assert decode_partial(json.dumps(event).encode()) == expected


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"type": "response.output_text.delta"}', b"\xff"])
def test_a_partial_result_that_cannot_be_read_is_an_error(body: bytes) -> None:
    event = decode_partial(body)
    assert isinstance(event, Error)
    assert event.code == "bad_frame"


COMPLETED = Completed({"choices": [{"finish_reason": "length"}]}, ServerUsage())
FAILED = Failed(BackendFailure("lost").info(), ServerUsage())


@pytest.mark.parametrize(
    ("terminal", "expected"),
    [
        (COMPLETED, Done("length")),
        (FAILED, Error("backend_error", "lost")),
        (ServerCancelled("engine", ServerUsage()), Cancelled("engine")),
    ],
)
def test_a_result_as_the_server_encodes_it(terminal: Completed | Failed | ServerCancelled, expected: Ending) -> None:
    metadata, body = encode_terminal(terminal, operation_id=1, times=Times())
    assert decode_result(body, metadata.payload_kind_bitmap) == expected


def test_an_empty_result_is_a_success() -> None:
    assert decode_result(b"", 0) == Done("stop")


def test_a_result_that_cannot_be_read_is_an_error() -> None:
    event = decode_result(b"garbage", int(PayloadKind.STRUCTURED_EVENT))
    assert isinstance(event, Error)
    assert event.code == "bad_frame"


SHUTDOWN = b'{"type": "response.cancelled", "reason": "shutdown"}'


@pytest.mark.parametrize(
    ("code", "diagnostic", "expected"),
    [
        (ResultDropReasonCode.PEER_CANCELLED, b'{"type": "response.cancelled", "reason": "r"}', Cancelled("r")),
        (ResultDropReasonCode.PEER_CANCELLED, b"", Cancelled("dropped")),
        (
            ResultDropReasonCode.TRANSPORT_CLOSED,
            SHUTDOWN,
            Error("transport_closed", "the server dropped the operation: shutdown"),
        ),
        (
            ResultDropReasonCode.DEADLINE_EXPIRED,
            b"?",
            Error("deadline_expired", "the server dropped the operation: dropped"),
        ),
        (77, b"", Error("drop_77", "the server dropped the operation: dropped")),
    ],
)
def test_a_drop(code: int, diagnostic: bytes, expected: Ending) -> None:
    assert decode_drop(code, diagnostic) == expected


@pytest.mark.parametrize(("token", "policy"), [(None, None), ("sesame", {"token": "sesame"})])
def test_the_token_travels_beside_the_body(token: str | None, policy: dict[str, str] | None) -> None:
    conversation = Conversation(model="m")
    conversation.say("Grüße")
    envelope = json.loads(encode_envelope(conversation.question(), token))
    assert envelope.get("nnrp") == policy
    assert envelope["body"]["messages"] == [{"role": "user", "content": "Grüße"}]
    assert "token" not in envelope["body"]


def call(index: int, call_id: str = "", name: str = "", arguments: str = "") -> pb.Reply:
    piece = pb.ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments)
    return pb.Reply(tokens=4, prompt_tokens=3, chat_deltas=[pb.ChatDelta(tool_calls=[piece])])


def text(content: str = "", reasoning: str = "", tokens: int = 4) -> pb.Reply:
    delta = pb.ChatDelta(content=content, reasoning_content=reasoning)
    return pb.Reply(message=content.encode(), tokens=tokens, prompt_tokens=3, chat_deltas=[delta])


END = pb.Reply(tokens=4, prompt_tokens=3)
F, G = ToolCallStart(0, "c0", "f"), ToolCallStart(1, "c1", "g")
REPLIES: dict[str, tuple[list[pb.Reply], int | None, list[ClientEvent]]] = {
    "text comes from the deltas, not from message": ([text("a"), END], None, [Text("a"), Usage(3, 4), Done("stop")]),
    "reasoning": ([text("", "r"), END], None, [Reasoning("r"), Usage(3, 4), Done("stop")]),
    "the limit was reached": ([text("a"), END], 4, [Text("a"), Usage(3, 4), Done("length")]),
    "the limit was not reached": ([text("a"), END], 5, [Text("a"), Usage(3, 4), Done("stop")]),
    "the last counts hold": ([text("a", tokens=1), END], None, [Text("a"), Usage(3, 4), Done("stop")]),
    "a call ends where the next one starts": (
        [call(0, "c0", "f"), call(0, arguments="{}"), call(1, "c1", "g", '{"a": 1}'), END],
        None,
        [
            F,
            ToolCallArguments(0, "{}"),
            ToolCallDone(0, "c0", "f", "{}"),
            G,
            ToolCallArguments(1, '{"a": 1}'),
            ToolCallDone(1, "c1", "g", '{"a": 1}'),
            Usage(3, 4),
            Done("tool_calls"),
        ],
    ),
    "a call that was cut is an error": (
        [call(0, "c0", "f", '{"a'), END],
        4,
        [
            F,
            ToolCallArguments(0, '{"a'),
            ToolCallError(0, "c0", "incomplete", "the arguments are not a whole JSON object"),
            Usage(3, 4),
            Done("length"),
        ],
    ),
    "an empty stream": ([], None, [Usage(0, 0), Done("stop")]),
}


@pytest.mark.parametrize(("replies", "max_tokens", "expected"), REPLIES.values(), ids=list(REPLIES))
def test_replies(replies: list[pb.Reply], max_tokens: int | None, expected: list[ClientEvent]) -> None:
    decoder = ReplyDecoder(max_tokens)
    events = [event for reply in replies for event in decoder.feed(reply)]
    assert [*events, *decoder.finish()] == expected


def test_an_abandoned_stream_fails_its_open_call() -> None:
    decoder = ReplyDecoder(None)
    decoder.feed(call(0, "c0", "f"))
    assert decoder.abandon("internal", "lost") == [ToolCallError(0, "c0", "internal", "lost")]
    assert decoder.abandon("internal", "lost") == []


def test_a_question_leaves_nothing_to_chance_on_grpc() -> None:
    conversation = Conversation()
    conversation.say("hello")
    options = encode_question(conversation.question())
    assert (options.Seed, options.Temperature, options.Tokens, options.TopK) == (-1, 0, 0, 0)
    assert options.UseTokenizerTemplate
    assert not options.Metadata
    assert options.Tools == ""
