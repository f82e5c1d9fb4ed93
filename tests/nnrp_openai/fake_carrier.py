# SPDX-License-Identifier: MIT
"""The carrier seam in memory: records what is sent, refuses what a carrier would refuse."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nnrp.core import ErrorCode, FrameSubmitMetadata, NnrpPacket, PayloadKind, ResultPushMetadata
from nnrp.core.packet import (
    build_frame_submit_typed_payload_packet,
    build_typed_payload_frame,
    unpack_body,
    unpack_typed_payload_frames,
)
from nnrp.runtime import ResultDropReasonCode, TraceContextMetadata
from nnrp.schema import StreamSemantics

from nnrp_wire.carrier import Control, Ended, EndReason, Handler, OperationEnded

_serials = itertools.count(1)


def submit_packet(text: bytes, *, operation_id: int = 7, frame_id: int = 3, **frame: Any) -> NnrpPacket:
    """A FRAME_SUBMIT as the SDK builds it."""
    fields: dict[str, Any] = {"stream_semantics": StreamSemantics.SNAPSHOT, **frame}
    payload = build_typed_payload_frame(fields.pop("kind", PayloadKind.STRUCTURED_EVENT), text, **fields)
    return build_frame_submit_typed_payload_packet(
        session_id=1, frame_id=frame_id, operation_id=operation_id, frames=[payload]
    )


def submit_metadata(packet: NnrpPacket) -> FrameSubmitMetadata:
    return FrameSubmitMetadata.unpack(packet.metadata)


def envelope(body: dict[str, Any] | None = None, /, **fields: Any) -> bytes:
    """A valid request's JSON; keywords replace or add envelope fields, `body` replaces or adds body fields."""
    request = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}], "stream": True, **(body or {})}
    document = {"schema_version": "openai-compatible/1", "operation": "chat.completions.create", "body": request}
    return json.dumps({**document, **fields}).encode()


def result_json(metadata: ResultPushMetadata, body: bytes) -> Any:
    view = unpack_body(body)
    (frame,) = unpack_typed_payload_frames(
        view.typed_payload_descriptor_region,
        view.typed_payload_frame_region,
        payload_kind_bitmap=metadata.payload_kind_bitmap,
    )
    return json.loads(frame.payload)


@dataclass(eq=False)
class FakeSession:
    session_id: int = 1
    connection_id: str = "c1"
    transport: str = "tcp"
    peer: str = "peer"
    priority_class: int = 1
    serial: int = field(default_factory=lambda: next(_serials))
    sent: list[tuple[str, Any]] = field(default_factory=list)

    def send_trace(self, metadata: TraceContextMetadata, *, frame_id: int = 0) -> None:
        self.sent.append(("trace", (frame_id, metadata)))

    def retry_after(self, delay_ms: int, *, reason: int, diagnostic: bytes = b"") -> None:
        self.sent.append(("retry_after", (delay_ms, reason)))

    def send_capabilities(self, control: Control, tokens: Sequence[str]) -> None:
        self.sent.append(("capabilities", sorted(tokens)))

    def send_error(self, code: ErrorCode, text: str, *, frame_id: int = 0) -> None:
        self.sent.append(("error", (code, text, frame_id)))


@dataclass(eq=False)
class FakeOperation:
    """`sent` are (kind, what) in order, also of its session; `room` cleared makes push() and finish() wait."""

    session: FakeSession
    body: bytes
    metadata: FrameSubmitMetadata
    operation_id: int = 7
    frame_id: int = 3
    trace_id: int = 0
    trace: TraceContextMetadata | None = None
    replaces: bool = False
    ended: Ended | None = None
    has_terminal: bool = False
    waiting: int = 0
    room: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.room.set()

    async def push(self, event: bytes) -> None:
        await self._pass()
        self.session.sent.append(("push", json.loads(event)))

    def progress(self, stage: int, percent_x100: int = 0xFFFF) -> None:
        self.session.sent.append(("progress", stage))

    async def finish(self, metadata: ResultPushMetadata, body: bytes) -> None:
        await self._pass()
        self.has_terminal = True
        self.session.sent.append(("finish", (metadata.status_code, result_json(metadata, body))))

    def drop(self, code: ResultDropReasonCode, diagnostic: bytes = b"", *, retryable: bool = False) -> None:
        if self.has_terminal:
            raise OperationEnded(self.ended)
        self.has_terminal = True
        self.session.sent.append(("drop", (int(code), json.loads(diagnostic), retryable)))

    async def _pass(self) -> None:
        while not self.room.is_set() and self.ended is None:
            self.waiting += 1
            await self.room.wait()
            self.waiting -= 1
        if self.has_terminal or self.ended is not None:
            raise OperationEnded(self.ended)

    def end(self, handler: Handler, reason: EndReason, reason_code: int = 0) -> None:
        """What the carrier does when the peer ends it; a finished operation is only late."""
        if self.has_terminal or self.ended is not None:
            return
        self.ended = Ended(reason, reason_code)
        self.room.set()
        handler.operation_ended(self)


def fake_operation(text: bytes, session: FakeSession | None = None, *, operation_id: int = 7) -> FakeOperation:
    packet = submit_packet(text, operation_id=operation_id, frame_id=operation_id)
    return FakeOperation(
        session or FakeSession(), packet.body, submit_metadata(packet), operation_id, frame_id=operation_id
    )
