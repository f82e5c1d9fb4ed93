# SPDX-License-Identifier: MIT
"""Packets: the 40-byte header, cutting a byte stream into frames, and packing what the server sends.

Own structs only where it is hot or where the SDK has no codec; every other record is the SDK's. Knows no state.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from nnrp.core import HEADER_LENGTH, HEADER_MAGIC, ErrorCode, ErrorScope, MessageType
from nnrp.runtime import RecoverableErrorMetadata, RuntimeRole

from nnrp_wire.limits import MAX_PACKET_BYTES

HEADER_LAYOUT = "<4sBBBBIIIIIHHQ"
HEADER = Struct(HEADER_LAYOUT)
KNOWN_HEADER_FLAGS = 0x3F
_LENGTHS = Struct("<II")  # metadata and body, in the header
_LENGTHS_AT = 12
VERSION_MAJOR = 1
WIRE_FORMAT = 0

# Header and metadata in one pack: these four are what a busy session sends.
_PARTIAL_RESULT = Struct(HEADER_LAYOUT + "QQQQII")
_PROGRESS = Struct(HEADER_LAYOUT + "QQHHQI")
_RESULT_DROP_REASON = Struct(HEADER_LAYOUT + "QQHBBIQ")
_RETRY_AFTER = Struct(HEADER_LAYOUT + "QQIIHBBI")
_SESSION_OPEN_ACK = Struct("<IHBBIIHHIIIIQIII")
_SESSION_CLOSE_ACK = Struct("<BBHQI")

_PARTIAL_TYPE = int(MessageType.PARTIAL_RESULT)
_SERVER = int(RuntimeRole.SERVER)
_FINAL, _RETRYABLE = 1, 2
_SESSION_CLOSED_STATUS = 2
PARTIAL_OVERHEAD_BYTES = _PARTIAL_RESULT.size
MAX_EVENT_BYTES = MAX_PACKET_BYTES - PARTIAL_OVERHEAD_BYTES


class WireFault(Exception):
    """The peer broke a rule that ends its connection."""


class FrameRefused(Exception):
    """The peer broke a rule that costs it this one frame; `str()` and `code` are for the peer."""

    def __init__(self, text: str, code: ErrorCode = ErrorCode.INVALID_STATE) -> None:
        super().__init__(text)
        self.code = code


class Frame(NamedTuple):
    message_type: int
    flags: int
    session_id: int
    frame_id: int
    trace_id: int
    metadata: bytes
    body: bytes


class FrameReader:
    """Cuts a byte stream into frames; holds at most one packet of `max_packet_bytes` beyond what was fed at once."""

    def __init__(self, max_packet_bytes: int) -> None:
        self._max_packet_bytes = max_packet_bytes
        self._buffer = bytearray()
        self._position = 0
        self.packets = 0

    @property
    def holds_half_packet(self) -> bool:
        return self._position < len(self._buffer)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """The next complete frame; None: more bytes are needed. Raises WireFault when the framing is lost."""
        start = self._position
        if len(self._buffer) - start < HEADER_LENGTH:
            self._check_magic(start)
            self._compact()
            return None
        magic, version, wire_format, kind, header_len, flags, meta_len, body_len, session_id, frame_id, _, _, trace = (
            HEADER.unpack_from(self._buffer, start)
        )
        if (magic, version, wire_format, header_len) != (HEADER_MAGIC, VERSION_MAJOR, WIRE_FORMAT, HEADER_LENGTH):
            raise WireFault("not an NNRP/1 header")
        body_at = start + HEADER_LENGTH + meta_len
        end = body_at + body_len
        if end - start > self._max_packet_bytes:  # from the header alone, before any of it is stored
            raise WireFault(f"packet of {end - start} bytes")
        if len(self._buffer) < end:
            self._compact()
            return None
        with memoryview(self._buffer) as view:
            metadata, body = bytes(view[start + HEADER_LENGTH : body_at]), bytes(view[body_at:end])
        self._position = end
        self.packets += 1
        return Frame(kind, flags, session_id, frame_id, trace, metadata, body)

    def _check_magic(self, start: int) -> None:
        # A stranger (HTTP, TLS) is recognised by its first bytes; it may never send forty.
        if not HEADER_MAGIC.startswith(self._buffer[start : start + len(HEADER_MAGIC)]):
            raise WireFault("not an NNRP/1 header")

    def _compact(self) -> None:
        if self._position:
            del self._buffer[: self._position]
            self._position = 0


class Outbox:
    """Bytes on their way out, in order. Whoever does the I/O takes them."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0
        self.unread_answer_bytes = 0  # since the peer was last seen reading

    def put(self, packet: bytes) -> None:
        self._parts.append(packet)
        self.size += len(packet)

    def put_answer(self, packet: bytes) -> None:
        """Like put(), for what a peer can cause without end: counted until it reads."""
        self.put(packet)
        self.unread_answer_bytes += len(packet)

    def put_partial(self, session_id: int, frame_id: int, operation_id: int, sequence: int, event: bytes) -> None:
        length = len(event)
        self._parts.append(
            _PARTIAL_RESULT.pack(
                HEADER_MAGIC, 1, 0, _PARTIAL_TYPE, 40, 0, 40, length, session_id, frame_id, 0, 0, 0,
                operation_id, sequence, 0, 0, length, 0,
            )
        )  # fmt: skip
        self._parts.append(event)
        self.size += PARTIAL_OVERHEAD_BYTES + length

    def take(self) -> bytes:
        """Everything queued so far, joined, so that one write carries it."""
        if not self._parts:
            return b""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self.size = 0
        return data


def packet_length(data: bytes) -> int:
    """How long the packet is that `data` begins with, by its header; 0 if that is not complete."""
    if len(data) < HEADER_LENGTH:
        return 0
    meta_len, body_len = _LENGTHS.unpack_from(data, _LENGTHS_AT)
    return HEADER_LENGTH + int(meta_len) + int(body_len)


def split_packets(data: bytes) -> Iterator[memoryview]:
    """The packets of ours that `data` consists of, in order."""
    view = memoryview(data)
    position = 0
    while position < len(data):
        meta_len, body_len = _LENGTHS.unpack_from(data, position + _LENGTHS_AT)
        end = position + HEADER_LENGTH + meta_len + body_len
        yield view[position:end]
        position = end


def packet(
    message_type: MessageType, *, session_id: int = 0, frame_id: int = 0, metadata: bytes = b"", body: bytes = b""
) -> bytes:
    header = HEADER.pack(
        HEADER_MAGIC, VERSION_MAJOR, WIRE_FORMAT, int(message_type), HEADER_LENGTH, 0,
        len(metadata), len(body), session_id, frame_id, 0, 0, 0,
    )  # fmt: skip
    return header + metadata + body


def progress_packet(
    session_id: int, frame_id: int, operation_id: int, sequence: int, stage: int, percent_x100: int
) -> bytes:
    return _PROGRESS.pack(
        HEADER_MAGIC, 1, 0, int(MessageType.PROGRESS), 40, 0, 32, 0, session_id, frame_id, 0, 0, 0,
        operation_id, sequence, stage, percent_x100, 0, 0,
    )  # fmt: skip


def drop_packet(
    session_id: int, frame_id: int, operation_id: int, sequence: int, code: int, diagnostic: bytes, *, retryable: bool
) -> bytes:
    flags = _FINAL | (_RETRYABLE if retryable else 0)
    fixed = _RESULT_DROP_REASON.pack(
        HEADER_MAGIC, 1, 0, int(MessageType.RESULT_DROP_REASON), 40, 0, 32, len(diagnostic), session_id, frame_id,
        0, 0, 0, operation_id, sequence, code, _SERVER, flags, len(diagnostic), 0,
    )  # fmt: skip
    return fixed + diagnostic


def retry_after_packet(session_id: int, sequence: int, delay_ms: int, reason: int, diagnostic: bytes) -> bytes:
    fixed = _RETRY_AFTER.pack(
        HEADER_MAGIC, 1, 0, int(MessageType.RETRY_AFTER), 40, 0, 32, len(diagnostic), session_id, 0, 0, 0, 0,
        session_id, sequence, delay_ms, 0, reason, _SERVER, 0, len(diagnostic),
    )  # fmt: skip
    return fixed + diagnostic


def error_packet(session_id: int, code: ErrorCode, text: str, frame_id: int) -> bytes:
    """ERROR_RECOVERABLE about one frame; its header names no frame, since a client may not know the one it is about."""
    diagnostic = text.encode()
    metadata = RecoverableErrorMetadata(
        error_code=int(code),
        error_scope=int(ErrorScope.FRAME),
        recovery_action=0,
        source_role=RuntimeRole.SERVER,
        flags=0,
        retry_after_ms=0,
        related_session_id=session_id,
        related_frame_id=frame_id,
        related_view_id=0,
        diagnostic_bytes=len(diagnostic),
    )
    return packet(MessageType.ERROR_RECOVERABLE, session_id=session_id, metadata=metadata.pack(), body=diagnostic)


def session_close_ack_packet(session_id: int, last_operation_id: int) -> bytes:
    metadata = _SESSION_CLOSE_ACK.pack(_SESSION_CLOSED_STATUS, 0, 0, last_operation_id, 0)
    return packet(MessageType.SESSION_CLOSE_ACK, session_id=session_id, metadata=metadata)


def session_open_ack_metadata(
    *, session_id: int, profile_id: int, priority: int, rejected: bool, schema: tuple[int, int], max_in_flight: int,
    lease_ms: int, diagnostic_bytes: int, tag: int, error_code: int,
) -> bytes:  # fmt: skip
    credit = max_in_flight  # information only: nothing on either side enforces it
    return _SESSION_OPEN_ACK.pack(
        session_id, profile_id, priority, int(rejected), *schema, credit, max_in_flight, lease_ms,
        0, 0, diagnostic_bytes, tag, 0, error_code, 0,
    )  # fmt: skip
