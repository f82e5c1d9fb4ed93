# SPDX-License-Identifier: MIT
"""As much of HTTP/2 (RFC 9113) as a gRPC client needs for a measurement: whole requests out, streamed answers in.

A client library takes more of a small machine than the server under test: grpc.aio's takes 80 µs for each message.
"""

from __future__ import annotations

import abc
import asyncio
import struct
from collections.abc import Iterator
from typing import cast

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 4, 5
CANCEL = 8
LARGEST_WINDOW = (1 << 31) - 1  # for all that one connection ever reads here, so that it says nothing more
FIRST_WINDOW_BYTES, FIRST_FRAME_BYTES = 65_535, 16_384  # until a peer says otherwise
_HEAD_BYTES = 9


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream_id) + payload


def literal(text: bytes) -> bytes:
    """HPACK's string of fewer than 127 bytes, as it is."""
    if len(text) >= 0x7F:
        raise ValueError(f"{len(text)} bytes are too many for a header here")
    return bytes([len(text)]) + text


class Http2Client(asyncio.Protocol, abc.ABC):
    """One connection. What it reads goes to the three abstract methods."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._window = self._stream_window = FIRST_WINDOW_BYTES
        self._frame_bytes = FIRST_FRAME_BYTES
        self._unsent: dict[int, tuple[bytes, int]] = {}  # by stream: the rest of its body, and the window it has
        self._next_stream_id = 1

    @abc.abstractmethod
    def data_of(self, stream_id: int, data: bytes) -> None: ...

    @abc.abstractmethod
    def headers_of(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        """`block` without indices into a table of its own: the peer may have none."""

    @abc.abstractmethod
    def lost(self, stream_id: int | None, why: str) -> None:
        """One stream, or all of them, come to nothing."""

    # Out

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        settings = {HEADER_TABLE_SIZE: 0, ENABLE_PUSH: 0, INITIAL_WINDOW_SIZE: LARGEST_WINDOW}
        payload = b"".join(struct.pack(">HI", *setting) for setting in settings.items())
        more = struct.pack(">I", LARGEST_WINDOW - FIRST_WINDOW_BYTES)
        self._write(PREFACE + frame(SETTINGS, 0, 0, payload) + frame(WINDOW_UPDATE, 0, 0, more))

    def request(self, headers: bytes, body: bytes) -> int:
        """Send it, as far as the peer takes it now; the stream's id."""
        stream_id = self._next_stream_id
        self._next_stream_id += 2
        self._write(frame(HEADERS, END_HEADERS, stream_id, headers))
        self._unsent[stream_id] = body, self._stream_window
        self._send_bodies()
        return stream_id

    def reset(self, stream_id: int) -> None:
        self._unsent.pop(stream_id, None)
        self._write(frame(RST_STREAM, 0, stream_id, struct.pack(">I", CANCEL)))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send_bodies(self) -> None:
        for stream_id, (body, window) in list(self._unsent.items()):
            while body and (room := min(window, self._window, self._frame_bytes)) > 0:
                piece, body = body[:room], body[room:]
                window -= len(piece)
                self._window -= len(piece)
                self._write(frame(DATA, 0 if body else END_STREAM, stream_id, piece))
            self._unsent[stream_id] = body, window
            if not body:
                del self._unsent[stream_id]

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    # In

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost(None, "the connection was closed")

    def data_received(self, data: bytes) -> None:
        self._data += data
        for kind, flags, stream_id, payload in self._frames():
            if kind == DATA:
                self.data_of(stream_id, payload)
                if flags & END_STREAM:
                    self.lost(stream_id, "the answer ended without trailers")
            elif kind == HEADERS:
                self.headers_of(stream_id, payload, is_end=bool(flags & END_STREAM))
            else:
                self._control(kind, flags, stream_id, payload)

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        data, at = self._data, 0
        while len(data) - at >= _HEAD_BYTES:
            end = at + _HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
            if end > len(data):
                break
            kind, flags, stream_id = struct.unpack_from(">BBI", data, at + 3)
            yield kind, flags, stream_id, bytes(data[at + _HEAD_BYTES : end])
            at = end
        del data[:at]

    def _control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            self._settings(payload)
            self._write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            self._widen(stream_id, int.from_bytes(payload, "big"))
        elif kind == RST_STREAM:
            self.lost(stream_id, f"the stream was reset ({int.from_bytes(payload, 'big')})")
        elif kind == GOAWAY:
            self.lost(None, f"the server goes away ({payload[8:].decode(errors='replace')})")

    def _settings(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == MAX_FRAME_SIZE:
                self._frame_bytes = value
            elif name == INITIAL_WINDOW_SIZE:
                more, self._stream_window = value - self._stream_window, value
                self._unsent = {each: (body, window + more) for each, (body, window) in self._unsent.items()}
        self._send_bodies()

    def _widen(self, stream_id: int, more: int) -> None:
        if stream_id == 0:
            self._window += more
        elif stream_id in self._unsent:
            body, window = self._unsent[stream_id]
            self._unsent[stream_id] = body, window + more
        self._send_bodies()
