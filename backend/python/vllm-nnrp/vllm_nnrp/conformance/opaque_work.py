# SPDX-License-Identifier: MIT
"""The profile's handler for the wire cases, whose submits hold no request of the profile but an opaque token chunk.

Such a submit is served as a chat completion that takes its time, so that a CANCEL, a DEADLINE or its completion goes
the way it goes for every request: admission, engine, abort, drop or result. Only the result is in the cases' own form.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from nnrp.core import FrameSubmitMetadata, PayloadKind, ResultPushMetadata
from nnrp.core.packet import build_typed_payload_frame, pack_body, pack_typed_payload_frames
from nnrp.runtime import ResultDropReasonCode, TraceContextMetadata
from nnrp.schema import StreamSemantics

from nnrp_openai import ProfileHandler
from nnrp_openai.profile import CHAT_COMPLETIONS, SCHEMA_VERSION, SUCCESS_STATUS
from nnrp_wire.carrier import Ended, Operation, Session

WORK_MODEL = "wire-work"  # a completion by it takes its time
RESULT = b"wire-external-result"  # the published suite compares the body of a result with it
TOKEN_PROFILE = 2


class WireTargetHandler(ProfileHandler):
    """As its base, and takes any submit that is no structured event as a piece of work."""

    def submitted(self, operation: Operation) -> None:
        is_request = operation.metadata.payload_kind_bitmap == PayloadKind.STRUCTURED_EVENT
        super().submitted(operation if is_request else _Work(operation))


class _Work:
    """An operation seen as a request for WORK_MODEL. Everything else is the operation itself."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self.metadata: FrameSubmitMetadata = replace(
            operation.metadata, payload_kind_bitmap=PayloadKind.STRUCTURED_EVENT, payload_frame_count=1
        )
        self.body = _request()

    async def finish(self, metadata: ResultPushMetadata, body: bytes) -> None:
        if metadata.status_code == SUCCESS_STATUS:
            kind = PayloadKind.TOKEN_CHUNK
            metadata = replace(metadata, active_profile_id=TOKEN_PROFILE, payload_kind_bitmap=kind)
            body = RESULT
        await self._operation.finish(metadata, body)

    async def push(self, event: bytes) -> None:
        await self._operation.push(event)

    def drop(self, code: ResultDropReasonCode, diagnostic: bytes = b"", *, retryable: bool = False) -> None:
        self._operation.drop(code, diagnostic, retryable=retryable)

    def progress(self, stage: int, percent_x100: int = 0xFFFF) -> None:
        self._operation.progress(stage, percent_x100)

    @property
    def session(self) -> Session:
        return self._operation.session

    @property
    def operation_id(self) -> int:
        return self._operation.operation_id

    @property
    def frame_id(self) -> int:
        return self._operation.frame_id

    @property
    def trace_id(self) -> int:
        return self._operation.trace_id

    @property
    def trace(self) -> TraceContextMetadata | None:
        return self._operation.trace

    @property
    def replaces(self) -> bool:
        return self._operation.replaces

    @property
    def ended(self) -> Ended | None:
        return self._operation.ended


def _request() -> bytes:
    """The body of a submit that asks WORK_MODEL."""
    body: dict[str, Any] = {"model": WORK_MODEL, "messages": [{"role": "user", "content": "work"}]}
    envelope = {"schema_version": SCHEMA_VERSION, "operation": CHAT_COMPLETIONS, "body": body}
    frame = build_typed_payload_frame(
        PayloadKind.STRUCTURED_EVENT, json.dumps(envelope).encode(), stream_semantics=StreamSemantics.SNAPSHOT
    )
    descriptors, payloads = pack_typed_payload_frames([frame])
    packed: bytes = pack_body(typed_payload_descriptor_region=descriptors, typed_payload_frame_region=payloads)
    return packed
