# SPDX-License-Identifier: MIT
"""The JSON of each event against the contract's fields, and the RESULT_PUSH of each terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nnrp.core import PayloadKind, ResultClass, ResultPushMetadata
from nnrp.core.packet import unpack_body, unpack_typed_payload_frames

from chatdelta import (
    ERROR_ROWS,
    Cancelled,
    Completed,
    ErrorCode,
    ErrorInfo,
    Failed,
    LogprobsDelta,
    Observation,
    Origin,
    Outcome,
    ReasoningDelta,
    ResponseHead,
    StreamEvent,
    Terminal,
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
from nnrp_openai import encoding
from nnrp_openai.chunks import openai_chunk
from nnrp_openai.encoding import Times, encode_cancelled, encode_diagnostics, encode_event, encode_terminal
from tests.nnrp_openai.fake_carrier import result_json

BROKEN = ErrorInfo(ErrorCode.BACKEND_ERROR, "cut", "length")
LOGPROB = TokenLogprob(1, "a", b"a", -0.5)

EVENTS: dict[str, tuple[StreamEvent, bytes]] = {
    "text": (TextDelta(0, "Hé\n"), '{"type":"response.output_text.delta","index":0,"delta":"Hé\\n"}'.encode()),
    "text of the second choice": (
        TextDelta(1, "x"),
        b'{"type":"response.output_text.delta","index":1,"delta":"x"}',
    ),
    "log-probabilities": (
        LogprobsDelta(1, (LOGPROB,)),
        b'{"type":"response.logprobs.delta","index":1,"content":['
        b'{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}]}',
    ),
    "reasoning": (ReasoningDelta(0, "hm"), b'{"type":"response.reasoning_text.delta","index":0,"delta":"hm"}'),
    "call started": (
        ToolCallStarted(2, 1, "i1", "c1", "lookup"),
        b'{"type":"response.tool_call.started","index":1,"item_id":"i1","call_id":"c1","name":"lookup"}',
    ),
    "call delta": (
        ToolCallDelta(0, 0, "i0", "c0", '{"a":'),
        b'{"type":"response.tool_call.delta","index":0,"item_id":"i0","call_id":"c0","arguments_delta":"{\\"a\\":"}',
    ),
    "call completed": (
        ToolCallCompleted(0, 0, "i0", "c0", "lookup", "{}"),
        b'{"type":"response.tool_call.completed","index":0,"item_id":"i0","call_id":"c0","name":"lookup",'
        b'"arguments":"{}"}',
    ),
    "call error": (
        ToolCallFailed(0, 0, "i0", "c0", BROKEN),
        b'{"type":"response.tool_call.error","index":0,"item_id":"i0","call_id":"c0",'
        b'"error":{"type":"server_error","code":"length","message":"cut"}}',
    ),
    "usage": (
        UsageReport(Usage(3, 4)),
        b'{"type":"response.usage","usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7}}',
    ),
    "usage in detail": (
        UsageReport(Usage(3, 4, reasoning_tokens=2, cached_tokens=0)),
        b'{"type":"response.usage","usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7,'
        b'"input_tokens_details":{"cached_tokens":0},"output_tokens_details":{"reasoning_tokens":2}}}',
    ),
}

# From openai-compatible-1.json: what each event must have, and what it may have beside that (ours: the extensions).
CALL = {"type", "index", "item_id", "call_id"}
CONTRACT: dict[str, tuple[set[str], set[str]]] = {
    "response.output_text.delta": ({"type", "index", "delta"}, set()),
    "response.reasoning_text.delta": ({"type", "index", "delta"}, set()),
    "response.tool_call.started": (CALL | {"name"}, {"choice_index"}),
    "response.tool_call.delta": (CALL | {"arguments_delta"}, {"choice_index"}),
    "response.tool_call.completed": (CALL | {"name", "arguments"}, {"choice_index"}),
    "response.tool_call.error": (CALL | {"error"}, {"choice_index"}),
    "response.usage": ({"type", "usage"}, set()),
    "response.logprobs.delta": ({"type", "index", "content"}, set()),
}


@pytest.mark.parametrize(("event", "expected"), EVENTS.values(), ids=EVENTS.keys())
def test_event(event: StreamEvent, expected: bytes) -> None:
    assert encode_event(event) == expected


@pytest.mark.parametrize("many_choices", [False, True])
@pytest.mark.parametrize("event", [event for event, _ in EVENTS.values()], ids=EVENTS.keys())
def test_fields_are_the_contract(event: StreamEvent, many_choices: bool) -> None:
    encoded = json.loads(encode_event(event, many_choices=many_choices))
    required, optional = CONTRACT[encoded["type"]]
    assert required <= set(encoded) <= required | optional


@pytest.mark.parametrize(
    "event",
    [
        ToolCallStarted(2, 1, "i", "c", "f"),
        ToolCallDelta(2, 1, "i", "c", "{"),
        ToolCallCompleted(2, 1, "i", "c", "f", "{}"),
        ToolCallFailed(2, 1, "i", "c", BROKEN),
    ],
)
def test_a_call_names_its_choice_when_there_are_several(event: StreamEvent) -> None:
    encoded = json.loads(encode_event(event, many_choices=True))
    assert (encoded["index"], encoded["choice_index"]) == (1, 2)


HEAD = ResponseHead("chatcmpl-1", 17, "m")
# What OpenAI's stream says for each event: `choices` of the chunk, None for no chunk.
CHUNKS: dict[str, tuple[StreamEvent, list[Any] | None]] = {
    "text": (
        TextDelta(1, "x"),
        [{"index": 1, "delta": {"content": "x"}, "logprobs": None, "finish_reason": None}],
    ),
    "reasoning": (
        ReasoningDelta(0, "hm"),
        [{"index": 0, "delta": {"reasoning": "hm"}, "logprobs": None, "finish_reason": None}],
    ),
    "call started": (
        ToolCallStarted(2, 1, "i1", "c1", "lookup"),
        [
            {
                "index": 2,
                "delta": {
                    "tool_calls": [
                        {"index": 1, "id": "c1", "type": "function", "function": {"name": "lookup", "arguments": ""}}
                    ]
                },
                "logprobs": None,
                "finish_reason": None,
            }
        ],
    ),
    "call delta": (
        ToolCallDelta(0, 0, "i0", "c0", "{"),
        [
            {
                "index": 0,
                "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
                "logprobs": None,
                "finish_reason": None,
            }
        ],
    ),
    "log-probabilities": (
        LogprobsDelta(0, (LOGPROB,)),
        [
            {
                "index": 0,
                "delta": {},
                "logprobs": {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]},
                "finish_reason": None,
            }
        ],
    ),
    "usage": (UsageReport(Usage(3, 4)), []),
    "call completed": (ToolCallCompleted(0, 0, "i0", "c0", "lookup", "{}"), None),
    "call error": (ToolCallFailed(0, 0, "i0", "c0", BROKEN), None),
}


@pytest.mark.parametrize(("event", "choices"), CHUNKS.values(), ids=CHUNKS.keys())
def test_the_chunk_of_an_event(event: StreamEvent, choices: list[Any] | None) -> None:
    chunk = openai_chunk(event, HEAD)
    if choices is None:
        assert chunk is None
        return
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 17, "model": "m", "choices": choices}
    usage = {"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}} if choices == [] else {}
    assert chunk == head | usage
    assert json.loads(encode_event(event, chunk=chunk))["openai_chunk"] == chunk


def test_diagnostics_leave_out_what_is_unknown() -> None:
    origin = Origin("nnrp", "tcp", "c1", 1, 7, 3, "label")
    observation = Observation(
        request_id="r",
        model="m",
        operation="chat.completions.create",
        origin=origin,
        outcome=Outcome.COMPLETED,
        duration_s=0.5,
        first_event_s=0.25,
        last_event_s=0.5,
        output_events=2,
        usage=Usage(3, 4),
        timings=Timings(0.001, 0.002, 0.003),
        error_kind=None,
        error_code=None,
        cancel_reason=None,
        parser_failure=None,
        trace=None,
    )
    assert json.loads(encode_diagnostics(observation)) == {
        "type": "response.diagnostics",
        "diagnostics": {
            "request_id": "r",
            "model": "m",
            "operation": "chat.completions.create",
            "transport": "tcp",
            "connection_id": "c1",
            "session_id": 1,
            "operation_id": 7,
            "frame_id": 3,
            "outcome": "completed",
            "output_events": 2,
            "duration_ms": 500.0,
            "first_event_ms": 250.0,
            "input_tokens": 3,
            "output_tokens": 4,
            "reasoning_tokens": 0,
            "backend": {"queue_ms": 1.0, "prefill_ms": 2.0, "decode_ms": 3.0},
        },
    }


BODY = {"id": "chatcmpl-1", "choices": [{"index": 0, "logprobs": None}], "usage": {"total_tokens": 2}}


def failed(kind: ErrorCode, **fields: Any) -> Failed:
    return Failed(ErrorInfo(kind, "why", ERROR_ROWS[kind].code, **fields), Usage())


def error(type_: str, code: str, **fields: str) -> dict[str, Any]:
    return {"type": "response.error", "error": {"type": type_, "code": code, "message": "why", **fields}}


TERMINALS: dict[str, tuple[Terminal, int, Any]] = {
    "completed": (Completed(BODY, Usage()), 200, {"type": "response.completed", "body": BODY}),
    "cancelled": (
        Cancelled("drained", Usage()),
        499,
        {
            "type": "response.cancelled",
            "reason": "drained",
            "source": "backend",
            "operation_id": 9,
            "backend_aborted": True,
        },
    ),
    "invalid request": (
        failed(ErrorCode.INVALID_REQUEST, param="n"),
        400,
        error("invalid_request_error", "invalid_request", param="n"),
    ),
    "operation": (
        failed(ErrorCode.UNSUPPORTED_OPERATION),
        400,
        error("invalid_request_error", "unsupported_operation"),
    ),
    "model": (failed(ErrorCode.UNSUPPORTED_MODEL), 404, error("invalid_request_error", "unsupported_model")),
    "token": (failed(ErrorCode.UNAUTHENTICATED), 401, error("authentication_error", "invalid_token")),
    "no model": (failed(ErrorCode.MODEL_NOT_LOADED), 503, error("server_error", "model_not_loaded")),
    "overload": (failed(ErrorCode.OVERLOADED, retry_after_ms=5), 429, error("server_error", "backend_overload")),
    "timeout": (failed(ErrorCode.TIMEOUT), 504, error("timeout_error", "request_timeout")),
    "backend": (failed(ErrorCode.BACKEND_ERROR), 500, error("server_error", "backend_error")),
    "engine dead": (failed(ErrorCode.ENGINE_DEAD), 500, error("server_error", "engine_dead")),
}


@pytest.mark.parametrize(("terminal", "status", "expected"), TERMINALS.values(), ids=TERMINALS.keys())
def test_terminal(terminal: Terminal, status: int, expected: Any) -> None:
    metadata, body = encode_terminal(terminal, operation_id=9, times=Times())
    assert (metadata.status_code, result_json(metadata, body)) == (status, expected)


def test_every_error_has_a_row_here() -> None:
    rows = {terminal.error.kind for terminal, _, _ in TERMINALS.values() if isinstance(terminal, Failed)}
    assert rows == set(ErrorCode) - {ErrorCode.CANCELLED}  # that one is response.cancelled


def test_the_frame_of_a_terminal() -> None:
    metadata, body = encode_terminal(Completed(BODY, Usage()), operation_id=9, times=Times())
    assert ResultPushMetadata.unpack(metadata.pack()) == metadata
    assert metadata.result_class is ResultClass.COMPLETE
    assert (int(metadata.payload_kind_bitmap), metadata.payload_frame_count) == (16, 1)
    view = unpack_body(body)
    (frame,) = unpack_typed_payload_frames(
        view.typed_payload_descriptor_region, view.typed_payload_frame_region, payload_kind_bitmap=16
    )
    assert frame.payload_kind is PayloadKind.STRUCTURED_EVENT
    numbers = (frame.profile_id, frame.schema_id, frame.schema_version, frame.descriptor_flags, frame.stream_semantics)
    assert tuple(map(int, numbers)) == (0, 0, 0, 0, 1)
    assert len(body) == 32 + 24 + len(frame.payload)


def test_times_are_milliseconds_and_clamped() -> None:
    times = Times(99.0, Timings(queue_s=-0.25, prefill_s=0.5, decode_s=1.0))
    metadata, _ = encode_terminal(Completed(BODY, Usage()), operation_id=9, times=times)
    assert (metadata.queue_ms, metadata.inference_ms, metadata.server_total_ms) == (0, 1500, 65535)
    metadata.pack()


def test_an_error_without_a_message_shows_its_code() -> None:
    info = ErrorInfo(ErrorCode.BACKEND_ERROR, "", "backend_error")
    metadata, body = encode_terminal(Failed(info, Usage()), operation_id=9, times=Times())
    assert result_json(metadata, body)["error"]["message"] == "backend_error"


def test_an_answer_too_large_for_a_packet_becomes_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_TERMINAL_JSON_BYTES", 200)
    metadata, body = encode_terminal(Completed({"text": "x" * 300}, Usage()), operation_id=9, times=Times())
    assert (metadata.status_code, result_json(metadata, body)["error"]["code"]) == (500, "answer_too_large")


@pytest.mark.parametrize(("aborted", "word"), [(True, "true"), (False, "false"), (None, "null")])
def test_the_cancelled_diagnostic(aborted: bool | None, word: str) -> None:
    encoded = encode_cancelled("user_cancelled", source="peer", operation_id=2**63, backend_aborted=aborted)
    assert encoded.decode() == (
        '{"type":"response.cancelled","reason":"user_cancelled","source":"peer",'
        f'"operation_id":9223372036854775808,"backend_aborted":{word}}}'
    )
