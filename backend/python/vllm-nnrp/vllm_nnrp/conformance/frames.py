# SPDX-License-Identifier: MIT
"""One frame the client received as a `Seen`, and what of it is not as the profile's wire mapping has it. Pure."""

from __future__ import annotations

import json
from typing import Any

from nnrp.core import MessageType, PayloadKind
from nnrp.schema import StreamSemantics

from vllm_nnrp.client.nnrp_events import result_frame
from vllm_nnrp.conformance.models import Json
from vllm_nnrp.conformance.observed import Seen

_DETAILS = ("status_code", "drop_reason_code", "result_sequence", "stage_code", "reason", "error_code")
_DESCRIPTOR = (0, 0, 0, 0, int(StreamSemantics.SNAPSHOT))  # profile, flags, schema, its version, semantics


def read_frame(kind: MessageType, frame_id: int, metadata: Any, body: bytes, at_us: int) -> tuple[Seen, list[str]]:
    """`body` is the frame's tail: an event, a packed result or a diagnostic."""
    detail = {name: int(getattr(metadata, name)) for name in _DETAILS if hasattr(metadata, name)}
    event, problems = _event(kind, metadata, body)
    return Seen(kind.name, at_us, event, {"frame_id": frame_id, **detail}), problems


def _event(kind: MessageType, metadata: Any, body: bytes) -> tuple[Json | None, list[str]]:
    match kind:
        case MessageType.PARTIAL_RESULT:
            return _read(kind, body)
        case MessageType.RESULT_PUSH if body:
            return _result(metadata, body)
        case MessageType.RESULT_DROP_REASON if body:
            event, _ = _read(kind, body)  # a diagnostic may be anything; an event is one where it names its type
            return (event, []) if event is not None and "type" in event else (None, [])
    return None, []


def _result(metadata: Any, body: bytes) -> tuple[Json | None, list[str]]:
    try:
        frame = result_frame(body, metadata.payload_kind_bitmap)
    except ValueError as exc:
        return None, [f"the body of RESULT_PUSH is not one typed payload: {exc}"]
    event, problems = _read(MessageType.RESULT_PUSH, bytes(frame.payload))
    if (metadata.payload_kind_bitmap, metadata.payload_frame_count) != (PayloadKind.STRUCTURED_EVENT, 1):
        problems.append("RESULT_PUSH does not say that it holds one structured event")
    descriptor = (frame.profile_id, frame.descriptor_flags, frame.schema_id, frame.schema_version)
    if (*map(int, descriptor), int(frame.stream_semantics)) != _DESCRIPTOR:
        problems.append("the payload of RESULT_PUSH is described as something else")
    return event, problems


def _read(kind: MessageType, payload: bytes) -> tuple[Json | None, list[str]]:
    try:
        event = json.loads(payload)
    except (ValueError, RecursionError) as exc:
        return None, [f"{kind.name} holds no JSON: {exc}"]
    return (event, []) if isinstance(event, dict) else (None, [f"{kind.name} holds no JSON object"])
