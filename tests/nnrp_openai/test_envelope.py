# SPDX-License-Identifier: MIT
"""Every rule of the request envelope, one row each; the frames are built by the SDK."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import pytest
from nnrp.core import BODY_REGION_PRELUDE_LENGTH, PayloadKind, SubmitMode
from nnrp.core.packet import pack_body
from nnrp.schema import StreamSemantics

from chatdelta import RESERVED_TEMPLATE_KWARGS, BackendError, InvalidRequest
from nnrp_openai.envelope import Submit, decode_submit
from nnrp_openai.jsondepth import has_more_containers, is_nested_deeper
from nnrp_openai.profile import ProfileLimits
from tests.nnrp_openai.fake_carrier import envelope, submit_metadata, submit_packet

LIMITS = ProfileLimits()
MESSAGES = [{"role": "user", "content": "hi"}]
DEEP = "[" * 65 + "]" * 65
CLOSED_TEN_MB = b"[" * 5_000_000 + b"]" * 5_000_000


def decode(text: bytes, *, token: str | None = None, limits: ProfileLimits = LIMITS, **frame: Any) -> Submit:
    packet = submit_packet(text, **frame)
    return decode_submit(submit_metadata(packet), packet.body, limits, token)


def refusal(text: bytes, *, token: str | None = None, limits: ProfileLimits = LIMITS) -> tuple[str, str, str | None]:
    """Type, code and param of the error."""
    with pytest.raises(BackendError) as caught:
        decode(text, token=token, limits=limits)
    info = caught.value.info()
    return info.type, info.code, info.param


BAD = "invalid_request_error"
REFUSED: dict[str, tuple[bytes, tuple[str, str, str | None]]] = {
    "not JSON": (b"hello", (BAD, "invalid_envelope", None)),
    "empty": (b"", (BAD, "invalid_envelope", None)),
    "cut JSON": (envelope()[:-1], (BAD, "invalid_envelope", None)),
    "not UTF-8": (b'{"schema_version": "\xff"}', (BAD, "invalid_envelope", None)),
    "a lone surrogate": (b'{"schema_version": "\\ud800"}', (BAD, "invalid_envelope", None)),
    "two documents": (envelope() * 2, (BAD, "invalid_envelope", None)),
    "NaN": (envelope(request_id=float("nan")), (BAD, "invalid_envelope", None)),
    "an array": (b"[]", (BAD, "invalid_envelope", None)),
    "unknown top-level field": (envelope(extra=1), (BAD, "invalid_envelope", "extra")),
    "schema_version missing": (b'{"operation": "x", "body": {}}', (BAD, "invalid_envelope", "schema_version")),
    "schema_version a number": (envelope(schema_version=1), (BAD, "invalid_envelope", "schema_version")),
    "schema_version of the next": (
        envelope(schema_version="openai-compatible/2"),
        (BAD, "unsupported_schema_version", "schema_version"),
    ),
    "operation missing": (b'{"schema_version": "openai-compatible/1"}', (BAD, "invalid_envelope", "operation")),
    "operation unknown": (envelope(operation="responses.create"), (BAD, "unsupported_operation", "operation")),
    "operation unknown, body of its own": (
        envelope(operation="responses.create", body={"input": "hello"}),
        (BAD, "unsupported_operation", "operation"),
    ),
    "request_id a number": (envelope(request_id=5), (BAD, "invalid_envelope", "request_id")),
    "request_id too long": (envelope(request_id="x" * 257), (BAD, "invalid_envelope", "request_id")),
    "body missing": (
        b'{"schema_version": "openai-compatible/1", "operation": "chat.completions.create"}',
        (BAD, "invalid_body", "body"),
    ),
    "body an array": (envelope(body=[]), (BAD, "invalid_body", "body")),
    "model missing": (envelope(body={"messages": MESSAGES}), (BAD, "missing_model", "model")),
    "model empty": (envelope({"model": ""}), (BAD, "missing_model", "model")),
    "model a number": (envelope({"model": 1}), (BAD, "missing_model", "model")),
    "messages missing": (envelope(body={"model": "m", "stream": False}), (BAD, "missing_messages", "messages")),
    "messages empty": (envelope({"messages": []}), (BAD, "missing_messages", "messages")),
    "messages a string": (envelope({"messages": "hi"}), (BAD, "invalid_body", "messages")),
    "model is told before messages": (envelope(body={}), (BAD, "missing_model", "model")),
    "stream a string": (envelope({"stream": "yes"}), (BAD, "invalid_body", "stream")),
    "stream_options a bool": (envelope({"stream_options": True}), (BAD, "invalid_body", "stream_options")),
    "include_usage a number": (
        envelope({"stream_options": {"include_usage": 1}}),
        (BAD, "invalid_body", "include_usage"),
    ),
    "n zero": (envelope({"n": 0}), (BAD, "invalid_body", "n")),
    "n a bool": (envelope({"n": True}), (BAD, "invalid_body", "n")),
    "n enormous": (envelope({"n": 10**9}), (BAD, "invalid_body", "n")),
    "nnrp a string": (envelope(nnrp="x"), (BAD, "invalid_nnrp_policy", "nnrp")),
    "nnrp unknown field": (envelope(nnrp={"priority": 1}), (BAD, "invalid_nnrp_policy", "nnrp.priority")),
    "timeout_ms negative": (envelope(nnrp={"timeout_ms": -1}), (BAD, "invalid_nnrp_policy", "nnrp.timeout_ms")),
    "timeout_ms a float": (envelope(nnrp={"timeout_ms": 1.5}), (BAD, "invalid_nnrp_policy", "nnrp.timeout_ms")),
    "timeout_ms a bool": (envelope(nnrp={"timeout_ms": True}), (BAD, "invalid_nnrp_policy", "nnrp.timeout_ms")),
    "timeout_ms beyond all bounds": (
        envelope(nnrp={"timeout_ms": 10**12}),
        (BAD, "invalid_nnrp_policy", "nnrp.timeout_ms"),
    ),
    "diagnostics a number": (envelope(nnrp={"diagnostics": 1}), (BAD, "invalid_nnrp_policy", "nnrp.diagnostics")),
    "progress a string": (envelope(nnrp={"progress": "yes"}), (BAD, "invalid_nnrp_policy", "nnrp.progress")),
    "cache_salt empty": (envelope(nnrp={"cache_salt": ""}), (BAD, "invalid_nnrp_policy", "nnrp.cache_salt")),
    "token a number": (envelope(nnrp={"token": 1}), (BAD, "invalid_nnrp_policy", "nnrp.token")),
    "65 levels": (envelope({"x": json.loads(DEEP[2:-2])}), (BAD, "invalid_body", None)),
    "10 MB of open brackets": (b"[" * 10_000_000, (BAD, "invalid_body", None)),
    "template kwargs that are no object": (
        envelope({"chat_template_kwargs": [1]}),
        (BAD, "invalid_body", "chat_template_kwargs"),
    ),
    **{
        f"the template's own {name}": (
            envelope({"chat_template_kwargs": {"enable_thinking": False, name: None}}),
            (BAD, "invalid_body", f"chat_template_kwargs.{name}"),
        )
        for name in sorted(RESERVED_TEMPLATE_KWARGS)
    },
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(text: bytes, expected: tuple[str, str, str | None]) -> None:
    assert refusal(text) == expected


ACCEPTED: dict[str, tuple[bytes, dict[str, Any]]] = {
    "the least": (
        envelope(body={"model": "m", "messages": MESSAGES}),
        {"model": "m", "stream": False, "choices": 1, "include_usage": False, "request_id": "", "timeout_s": None},
    ),
    "stream": (envelope({"stream": True}), {"stream": True}),
    "stream null": (envelope({"stream": None}), {"stream": False}),
    "usage asked for": (envelope({"stream_options": {"include_usage": True}}), {"include_usage": True}),
    "n": (envelope({"n": 3}), {"choices": 3}),
    "request_id": (envelope(request_id="r-1"), {"request_id": "r-1"}),
    "nnrp null": (envelope(nnrp=None), {"timeout_s": None, "cache_salt": None}),
    "timeout_ms 0 is none": (envelope(nnrp={"timeout_ms": 0}), {"timeout_s": None}),
    "all of nnrp": (
        envelope(nnrp={"timeout_ms": 1500, "diagnostics": True, "progress": True, "cache_salt": "s", "token": "t"}),
        {"timeout_s": 1.5, "diagnostics": True, "progress": True, "cache_salt": "s"},
    ),
    "64 levels": (envelope({"x": json.loads(DEEP[3:-3])}), {"model": "scripted"}),
    "template kwargs": (envelope({"chat_template_kwargs": {"enable_thinking": False, "x": 1}}), {"model": "scripted"}),
    "template kwargs null": (envelope({"chat_template_kwargs": None}), {"model": "scripted"}),
    "brackets in strings are text": (envelope({"x": "[" * 1000 + '\\"{' * 100}), {"model": "scripted"}),
}


@pytest.mark.parametrize(("text", "expected"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(text: bytes, expected: dict[str, Any]) -> None:
    submit = decode(text)
    assert {name: getattr(submit, name) for name in expected} == expected


def test_the_body_arrives_untouched() -> None:
    body = {"model": "m", "messages": MESSAGES, "temperature": 0, "unknown": {"kept": [1, None]}}
    assert decode(envelope(body=body)).body == body


TOKENS: dict[str, tuple[bytes, str | None]] = {
    "none given": (envelope(), "secret"),
    "wrong": (envelope(nnrp={"token": "Secret"}), "secret"),
    "empty": (envelope(nnrp={"token": ""}), "secret"),
    "a prefix": (envelope(nnrp={"token": "secre"}), "secret"),
    "not ASCII": (envelope(nnrp={"token": "sécret"}), "secret"),
    "before the schema version": (envelope(schema_version="openai-compatible/2"), "secret"),
    "before the operation": (envelope(operation="responses.create"), "secret"),
    "before the body": (envelope(body=None), "secret"),
}


@pytest.mark.parametrize(("text", "token"), TOKENS.values(), ids=TOKENS.keys())
def test_token_refused(text: bytes, token: str) -> None:
    assert refusal(text, token=token) == ("authentication_error", "invalid_token", None)


@pytest.mark.parametrize("required", ["secret", "sécret", None])
def test_token_is_right_or_not_asked_for_and_goes_no_further(required: str | None) -> None:
    submit = decode(envelope(nnrp={"token": required or "whatever"}), token=required)
    assert (required or "whatever") not in repr(dataclasses.asdict(submit))


def test_a_refusal_shows_no_value_of_the_peer() -> None:
    with pytest.raises(BackendError) as caught:
        decode(envelope(nnrp={"token": "top-secret", "timeout_ms": "top-secret"}))
    assert "top-secret" not in str(caught.value)
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True), "nor does its traceback"


def test_an_unknown_name_is_cut_and_made_printable() -> None:
    with pytest.raises(BackendError) as caught:
        decode(envelope(operation="a\nb" + "c" * 500))
    assert str(caught.value) == "operation a?b" + "c" * 61 + "… is not supported"


def test_raw_size_is_checked_first() -> None:
    text = envelope()
    size = len(submit_packet(text).body)
    assert decode(text, limits=ProfileLimits(max_request_bytes=size)).model == "scripted"
    assert refusal(text, limits=ProfileLimits(max_request_bytes=size - 1)) == (BAD, "invalid_body", None)


NESTED = ProfileLimits(max_request_bytes=16_000_000, max_json_containers=16_000_000)
HOSTILE: dict[str, bytes] = {
    "open arrays": b"[" * 10_000_000,
    "closed arrays": CLOSED_TEN_MB,
    "objects": b'{"a":' * 2_000_000,
    "siblings between the levels": b"[[],[{}]," * 1_100_000,
    "inside an envelope": envelope()[:-1] + b', "nnrp": ' + CLOSED_TEN_MB + b"}",
    "brackets behind strings": (b'["[\\"",' * 1_400_000) + b"]" * 1_400_000,
    "an endless string": b'"' + b'\\"[' * 3_300_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_ten_megabytes_of_nesting_are_refused_cheaply(text: bytes) -> None:
    packet = submit_packet(text)
    metadata = submit_metadata(packet)
    started_s = time.process_time()
    with pytest.raises(BackendError) as caught:
        decode_submit(metadata, packet.body, NESTED, None)
    assert caught.value.code in ("invalid_body", "invalid_envelope")
    assert time.process_time() - started_s < 3.0  # 0.1 to 0.5 s on an idle machine; a loop over bytes takes many


DEPTHS: dict[str, tuple[bytes, int]] = {
    "scalar": (b"1", 0),
    "object": (b"{}", 1),
    "siblings": (b"[[], {}, [[]]]", 3),
    "mixed": (b'{"a": [{"b": [1, {"c": {}}]}]}', 6),
    "in a string": (b'["[[[[[["]', 1),
    "behind an escaped quote": (b'["\\"[[[["]', 1),
    "behind an escaped backslash": (b'[["\\\\"], [[]]]', 3),
    "two strings with a seam": (b'[["[",""], "]", [[["["]]]]', 4),
    "wide": (b"[" + b"[]," * 1000 + b"[]]", 2),
}


@pytest.mark.parametrize(("text", "depth"), DEPTHS.values(), ids=DEPTHS.keys())
def test_depth(text: bytes, depth: int) -> None:
    assert [is_nested_deeper(text, limit) for limit in range(8)] == [depth > limit for limit in range(8)]


COUNTS: dict[str, tuple[bytes, int]] = {
    "scalar": (b"1", 0),
    "object": (b"{}", 1),
    "siblings": (b"[[], {}, [[]]]", 5),
    "in strings": (b'["[[{{[[", {"[": "{"}]', 2),
    "behind an escaped quote": (b'["\\"[[[["]', 1),
}


@pytest.mark.parametrize(("text", "count"), COUNTS.values(), ids=COUNTS.keys())
def test_containers(text: bytes, count: int) -> None:
    assert [has_more_containers(text, limit) for limit in range(7)] == [count > limit for limit in range(7)]


def test_a_request_of_too_many_parts_is_refused_and_a_long_text_is_not() -> None:
    limits = ProfileLimits()
    parts = submit_packet(envelope({"list": [{}] * limits.max_json_containers}))
    with pytest.raises(InvalidRequest, match="JSON has at most 50000 arrays and objects") as caught:
        decode_submit(submit_metadata(parts), parts.body, limits, None)
    assert caught.value.code == "invalid_body"
    text = submit_packet(envelope({"list": "[{" * 2 * limits.max_json_containers}))
    decode_submit(submit_metadata(text), text.body, limits, None)


FRAMES: dict[str, dict[str, Any]] = {
    "another kind": {"kind": PayloadKind.OPAQUE_BYTES},
    "a profile": {"profile_id": 2},
    "a schema": {"schema_id": 1},
    "a schema version": {"schema_version": 1},
    "a descriptor flag": {"descriptor_flags": 1},
    "append semantics": {"stream_semantics": StreamSemantics.APPEND},
    "unspecified semantics": {"stream_semantics": StreamSemantics.UNSPECIFIED},
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_descriptor_refused(frame: dict[str, Any]) -> None:
    with pytest.raises(BackendError) as caught:
        decode(envelope(), **frame)
    assert caught.value.code == "invalid_envelope"


GOOD = submit_packet(envelope())
PRELUDE = BODY_REGION_PRELUDE_LENGTH
DESCRIPTOR, PAYLOAD = GOOD.body[PRELUDE : PRELUDE + 24], GOOD.body[PRELUDE + 24 :]
BODIES: dict[str, bytes] = {
    "empty": b"",
    "garbage": b"\x07" * 200,
    "only a prelude": GOOD.body[:PRELUDE],
    "cut": GOOD.body[:-1],
    "longer than it says": GOOD.body + b"x",
    "bare JSON": PAYLOAD,
    "two descriptors": pack_body(typed_payload_descriptor_region=DESCRIPTOR * 2, typed_payload_frame_region=PAYLOAD),
    "no descriptor": pack_body(typed_payload_frame_region=PAYLOAD),
    "payload shorter than the descriptor": pack_body(
        typed_payload_descriptor_region=DESCRIPTOR, typed_payload_frame_region=PAYLOAD[:-1]
    ),
    "an inline object": pack_body(
        inline_object_region=bytes(16), typed_payload_descriptor_region=DESCRIPTOR, typed_payload_frame_region=PAYLOAD
    ),
    "an extension": pack_body(
        typed_payload_descriptor_region=DESCRIPTOR,
        typed_payload_frame_region=PAYLOAD,
        extension_descriptor_region=bytes(16),
    ),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_typed_payload_refused(body: bytes) -> None:
    with pytest.raises(BackendError) as caught:
        decode_submit(submit_metadata(GOOD), body, LIMITS, None)
    assert caught.value.code == "invalid_envelope"


METADATA: dict[str, dict[str, Any]] = {
    "two kinds": {"payload_kind_bitmap": PayloadKind.STRUCTURED_EVENT | PayloadKind.TOOL_DELTA},
    "no kind": {"payload_kind_bitmap": PayloadKind.NONE},
    "two frames": {"payload_frame_count": 2},
    "no frame": {"payload_frame_count": 0},
    "by reference": {"submit_mode": SubmitMode.REFERENCE},
    "an object reference": {"object_ref_mask": 1},
}


@pytest.mark.parametrize("changes", METADATA.values(), ids=METADATA.keys())
def test_metadata_refused(changes: dict[str, Any]) -> None:
    metadata = dataclasses.replace(submit_metadata(GOOD), **changes)
    with pytest.raises(BackendError) as caught:
        decode_submit(metadata, GOOD.body, LIMITS, None)
    assert caught.value.code == "invalid_envelope"
