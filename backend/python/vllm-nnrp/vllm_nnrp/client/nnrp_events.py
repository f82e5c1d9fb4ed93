# SPDX-License-Identifier: MIT
"""Frames of openai-compatible/1 as client events; and a question as the envelope that asks it. Pure."""

from __future__ import annotations

import json
import struct
from typing import Any

from nnrp.core.packet import unpack_body, unpack_typed_payload_frames
from nnrp.runtime import ResultDropReasonCode

from vllm_nnrp.client.conversation import Question
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

BAD_FRAME = "bad_frame"  # our own code for what the server should not have sent


def encode_envelope(question: Question, token: str | None) -> bytes:
    return _envelope("chat.completions.create", question.openai_body(), token)


def encode_capabilities_get(token: str | None) -> bytes:
    """The envelope that asks for the capability document."""
    return _envelope("capabilities.get", {}, token)


def _envelope(operation: str, body: dict[str, Any], token: str | None) -> bytes:
    envelope: dict[str, Any] = {"schema_version": "openai-compatible/1", "operation": operation, "body": body}
    if token is not None:
        envelope["nnrp"] = {"token": token}
    return json.dumps(envelope, ensure_ascii=False).encode()


def decode_event(payload: bytes) -> ClientEvent | None:
    """One profile event; None for a type this client does not know. Raises ValueError for what is none."""
    event = json.loads(payload)
    if not isinstance(event, dict):
        raise ValueError("not a JSON object")
    try:
        return _event(event)
    except (KeyError, TypeError, IndexError) as exc:
        raise ValueError(f"{event.get('type')}: {type(exc).__name__} {exc}") from exc


def _event(event: dict[str, Any]) -> ClientEvent | None:
    match event.get("type"):
        case "response.output_text.delta":
            return Text(event["delta"])
        case "response.reasoning_text.delta":
            return Reasoning(event["delta"])
        case "response.tool_call.started":
            return ToolCallStart(event["index"], event["call_id"], event["name"])
        case "response.tool_call.delta":
            return ToolCallArguments(event["index"], event["arguments_delta"])
        case "response.tool_call.completed":
            return ToolCallDone(event["index"], event["call_id"], event["name"], event["arguments"])
        case "response.tool_call.error":
            error = event["error"]
            return ToolCallError(event["index"], event["call_id"], error["code"], error["message"])
        case "response.usage":
            return Usage(event["usage"]["input_tokens"], event["usage"]["output_tokens"])
        case "response.completed":
            return Done(event["body"]["choices"][0]["finish_reason"])
        case "response.error":
            return Error(event["error"]["code"], event["error"]["message"])
        case "response.cancelled":
            return Cancelled(event["reason"])
        case _:
            return None


def decode_partial(body: bytes) -> ClientEvent | None:
    """The event of a PARTIAL_RESULT. An ending is left to the terminal frame, which says it again."""
    try:
        event = decode_event(body)
    except ValueError as exc:
        return Error(BAD_FRAME, f"the server sent an event that cannot be read: {exc}")
    return None if isinstance(event, Done | Error | Cancelled) else event


def result_frame(body: bytes, payload_kind_bitmap: int) -> Any:
    """The SDK's record of the one typed payload in a RESULT_PUSH. Raises ValueError for what is none."""
    try:
        view = unpack_body(body)
        (frame,) = unpack_typed_payload_frames(
            view.typed_payload_descriptor_region,
            view.typed_payload_frame_region,
            payload_kind_bitmap=payload_kind_bitmap,
        )
    except struct.error as exc:
        raise ValueError(str(exc)) from exc
    return frame


def decode_result(body: bytes, payload_kind_bitmap: int) -> Ending:
    """The ending in a RESULT_PUSH."""
    if not body:
        return Done("stop")
    try:
        event = decode_event(bytes(result_frame(body, payload_kind_bitmap).payload))
    except ValueError as exc:
        return Error(BAD_FRAME, f"the server sent a result that cannot be read: {exc}")
    if isinstance(event, Done | Error | Cancelled):
        return event
    return Error(BAD_FRAME, "the server sent a result that is no ending")


def decode_document(body: bytes, payload_kind_bitmap: int) -> dict[str, Any] | Error:
    """The JSON object in a RESULT_PUSH that answers `capabilities.get`."""
    try:
        event = json.loads(_payload(body, payload_kind_bitmap))
        document = event["body"] if event["type"] == "response.completed" else decode_event(json.dumps(event).encode())
    except (ValueError, KeyError, TypeError) as exc:
        return Error(BAD_FRAME, f"the server sent a result that cannot be read: {type(exc).__name__} {exc}")
    if isinstance(document, dict | Error):
        return document
    return Error(BAD_FRAME, "the server sent a result that is no document")


def _payload(body: bytes, payload_kind_bitmap: int) -> bytes:
    """The one typed payload of a RESULT_PUSH. Raises ValueError."""
    view = unpack_body(body)
    (frame,) = unpack_typed_payload_frames(
        view.typed_payload_descriptor_region,
        view.typed_payload_frame_region,
        payload_kind_bitmap=payload_kind_bitmap,
    )
    return bytes(frame.payload)


def decode_drop(code: int, diagnostic: bytes) -> Ending:
    """The ending in a RESULT_DROP_REASON: what we cancelled is Cancelled, everything else an Error."""
    try:
        event = decode_event(diagnostic)
    except ValueError:
        event = None
    reason = event.reason if isinstance(event, Cancelled) else "dropped"
    if code == ResultDropReasonCode.PEER_CANCELLED:
        return Cancelled(reason)
    known = {member.value: member.name.lower() for member in ResultDropReasonCode}
    return Error(known.get(code, f"drop_{code}"), f"the server dropped the operation: {reason}")
