# SPDX-License-Identifier: MIT
"""Client frames of NNRP/1 built by hand, and server frames taken apart by hand.

Independent of the carrier under test and of the SDK's codecs: the layouts are written out here from the protocol.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

HEADER = Struct("<4sBBBBIIIIIHHQ")
CONTROL = Struct("<QQHBBIQ")  # CANCEL, ABORT, RESULT_DROP_REASON
SCHEDULING = Struct("<QQHhQI")
SUPERSEDE = Struct("<QQQHHI")
TRACE = Struct("<QQQHHI")
SUBMIT = Struct("<HHHHHHBBBBHHIIIIIQIBBBBIIIHH")
HELLO = Struct("<BBHIIIIIIHHHHIIHHHHIII")
OPEN = Struct("<IHBBIIIHHIIIIQ")
CLOSE = Struct("<HBBIQII")
FLOW = Struct("<BBBBHHHHQIII")
PRESSURE = Struct("<QQHHIII")
CAPABILITY = Struct("<HHHHQQII")
OPEN_ACK = Struct("<IHBBIIHHIIIIQIII")

CLIENT_HELLO, SERVER_HELLO_ACK = 0x01, 0x02
SESSION_PATCH, SESSION_PATCH_ACK = 0x03, 0x04
SESSION_OPEN, SESSION_OPEN_ACK, SESSION_CLOSE, SESSION_CLOSE_ACK = 0x07, 0x08, 0x09, 0x0A
FRAME_SUBMIT, FRAME_CANCEL, RESULT_PUSH, RESULT_DROP = 0x10, 0x11, 0x12, 0x13
CACHE_PUT, CACHE_ACK, CACHE_INVALIDATE = 0x14, 0x15, 0x16
FLOW_UPDATE, RESULT_HINT, TRANSPORT_PROBE, TRANSPORT_PROBE_ACK, SESSION_MIGRATE = 0x17, 0x18, 0x19, 0x1A, 0x1B
PING, PONG = 0x20, 0x21
CANCEL, ABORT, PRIORITY_UPDATE, DEADLINE, EXPIRE_AT, SUPERSEDE_FRAME = 0x30, 0x31, 0x32, 0x33, 0x34, 0x35
BUDGET_UPDATE, PROGRESS, PARTIAL_RESULT, BACKPRESSURE, CREDIT_UPDATE = 0x36, 0x37, 0x38, 0x39, 0x3A
CAPABILITY_NEGOTIATION, DEGRADE_PROFILE, ROUTE_HINT, EXECUTION_HINT = 0x3B, 0x3C, 0x3D, 0x3E
TRACE_CONTEXT, RESULT_DROP_REASON = 0x3F, 0x40
OBJECT_DECLARE, OBJECT_REF, OBJECT_RELEASE, OBJECT_PATCH, OBJECT_DELTA = 0x41, 0x42, 0x43, 0x44, 0x45
CACHE_REFERENCE, CACHE_MISS, ERROR_RECOVERABLE, RETRY_AFTER = 0x46, 0x47, 0x48, 0x49


class Reply(NamedTuple):
    """A server frame."""

    kind: int
    session_id: int
    frame_id: int
    metadata: bytes
    body: bytes


def frame(
    kind: int,
    metadata: bytes = b"",
    body: bytes = b"",
    *,
    session: int = 1,
    frame_id: int = 0,
    flags: int = 0,
    trace_id: int = 0,
) -> bytes:
    header = HEADER.pack(b"NNRP", 1, 0, kind, 40, flags, len(metadata), len(body), session, frame_id, 0, 0, trace_id)
    return header + metadata + body


def session_of(packet: bytes) -> int:
    """The session id of a packet's header; -1 for what is no whole header."""
    return int(HEADER.unpack_from(packet)[8]) if len(packet) >= HEADER.size else -1


def hello(
    *,
    versions: tuple[int, int] = (1, 1),
    formats: int = 1,
    profiles: int = 3,
    kinds: int = 0x7F,
    auth: bytes = b"",
    declared_auth: int | None = None,
) -> bytes:
    """CLIENT_HELLO with codec, compression, dtype, layout, digest bitmaps 1, 2, 3, 4, 5 to be found in the answer."""
    metadata = HELLO.pack(
        *versions, formats, profiles, kinds, 1, 2, 3, 4, 5, 0, 0, 2, 0, 0, 6000, 50, 1, 2, 0,
        len(auth) if declared_auth is None else declared_auth, 0,
    )  # fmt: skip
    return frame(CLIENT_HELLO, metadata, auth, session=0)


def session_open(
    *,
    requested: int = 0,
    profile: int = 2,
    flags: int = 0,
    schema: tuple[int, int] = (0x1001, 3),
    max_in_flight: int = 4,
    reserved: int = 0,
    priority: int = 1,
    token: bytes = b"",
    auth: bytes = b"",
    session: int = 0,
) -> bytes:
    metadata = OPEN.pack(
        requested, profile, priority, flags, *schema, 500, max_in_flight, reserved, 30_000, len(token), len(auth), 0, 77
    )
    return frame(SESSION_OPEN, metadata, token + auth, session=session)


def session_close(*, session: int = 1, policy: int = 0, drain_ms: int = 0, last_operation: int = 9) -> bytes:
    return frame(SESSION_CLOSE, CLOSE.pack(0, policy, 0, drain_ms, last_operation, 0, 0), session=session)


def submit(
    operation: int,
    frame_id: int,
    body: bytes = b"{}",
    *,
    session: int = 1,
    kinds: int = 16,
    budget: int = 0,
    reserved: int = 0,
    tile_count: int = 0,
    object_ref_mask: int = 0,
    trace_id: int = 0,
) -> bytes:
    metadata = SUBMIT.pack(
        0, 0, 0, 0, tile_count, 0, 0, 0, 1, reserved, 0, 0, 0, 0, 0, 0, 0, operation,
        0, 0, budget, 0xFF, 0, object_ref_mask, 0, kinds, 1, 0,
    )  # fmt: skip
    return frame(FRAME_SUBMIT, metadata, body, session=session, frame_id=frame_id, trace_id=trace_id)


def control(
    kind: int,
    operation: int,
    frame_id: int,
    *,
    session: int = 1,
    reason: int = 1,
    role: int = 1,
    flags: int = 0,
    reserved: int = 0,
    diagnostic: bytes = b"",
    declared: int | None = None,
) -> bytes:
    """CANCEL or ABORT."""
    length = len(diagnostic) if declared is None else declared
    metadata = CONTROL.pack(operation, 1, reason, role, flags, length, reserved)
    return frame(kind, metadata, diagnostic, session=session, frame_id=frame_id)


def frame_cancel(frame_id: int, *, session: int = 1) -> bytes:
    return frame(FRAME_CANCEL, session=session, frame_id=frame_id)


def supersede(old: int, new: int, frame_id: int, *, session: int = 1, flags: int = 0, diagnostic: bytes = b"") -> bytes:
    metadata = SUPERSEDE.pack(old, new, 1, 2, flags, len(diagnostic))
    return frame(SUPERSEDE_FRAME, metadata, diagnostic, session=session, frame_id=frame_id)


def schedule(kind: int, operation: int, frame_id: int, unix_ms: int, *, session: int = 1, flags: int = 0) -> bytes:
    """DEADLINE, EXPIRE_AT or PRIORITY_UPDATE."""
    metadata = SCHEDULING.pack(operation, 1, 0, 0, unix_ms, flags)
    return frame(kind, metadata, session=session, frame_id=frame_id)


def trace(
    frame_id: int,
    *,
    trace_id: int = 0xABC,
    span_id: int = 0xDEF,
    stage: int = 0,
    flags: int = 1,
    header_trace: int = 0,
    body: bytes = b"",
    session: int = 1,
) -> bytes:
    metadata = TRACE.pack(trace_id, span_id, 0, stage, flags, len(body))
    return frame(TRACE_CONTEXT, metadata, body, session=session, frame_id=frame_id, trace_id=header_trace)


def flow_update(scope: int, *, session: int = 1, operation: int = 0, frame_id: int = 0, reserved: int = 0) -> bytes:
    credit = [0, 0, 0]
    credit[scope] = 3
    metadata = FLOW.pack(scope, 0, 0, reserved, *credit, 0, operation, 0, 1, 1)
    return frame(FLOW_UPDATE, metadata, session=session, frame_id=frame_id)


def pressure(kind: int, *, level: int, reserved: int = 0) -> bytes:
    """BACKPRESSURE or CREDIT_UPDATE."""
    return frame(kind, PRESSURE.pack(1, 4, level, 0, 0, 0, reserved), frame_id=5)


def capabilities(kind: int, *tokens: str, count: int | None = None, body: bytes | None = None) -> bytes:
    """CAPABILITY_NEGOTIATION or DEGRADE_PROFILE."""
    encoded = b"".join(len(token).to_bytes(2, "little") + token.encode() for token in tokens)
    tail = encoded if body is None else body
    counted = len(tokens) if count is None else count
    return frame(kind, CAPABILITY.pack(2, counted, 0, 0, 0, 0, len(tail), 0), tail)


def probe(payload: bytes = b"abc", *, declared: int | None = None) -> bytes:
    length = len(payload) if declared is None else declared
    return frame(TRANSPORT_PROBE, Struct("<IIQ").pack(7, length, 123), payload, session=0)


def take_apart(data: bytes) -> list[Reply]:
    """Server frames of a whole byte stream; checks what every header of ours must carry."""
    replies: list[Reply] = []
    position = 0
    while position < len(data):
        magic, major, wire_format, kind, length, flags, meta_len, body_len, session, frame_id, view, route, _ = (
            HEADER.unpack_from(data, position)
        )
        assert (magic, major, wire_format, length, flags, view, route) == (b"NNRP", 1, 0, 40, 0, 0, 0)
        body_at = position + 40 + meta_len
        position_after = body_at + body_len
        assert position_after <= len(data), "a frame is cut off"
        replies.append(Reply(kind, session, frame_id, data[position + 40 : body_at], data[body_at:position_after]))
        position = position_after
    return replies
