# SPDX-License-Identifier: MIT
"""WebSocket (RFC 6455) as a layer, on the sans-IO protocol of the `websockets` package: one packet per binary message.

Any path is served; no subprotocol, no extension, so no compression. A request with an Origin is refused: it comes from
a web page, and a page of anybody's must not reach a listener on its visitor's machine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Event, State
from websockets.server import ServerProtocol

from nnrp_wire.wire import packet_length, split_packets

MAX_REQUEST_BYTES = 16 * 1024
_END_OF_REQUEST = b"\r\n\r\n"
_METHOD = b"GET "
# The largest frame that common clients accept is 16 MiB; a longer message goes out in pieces.
_MAX_FRAME_BYTES = 8 * 1024 * 1024

# The package logs the content of frames at level DEBUG. This logger has no handlers and no parent.
_SILENT = logging.Logger("nnrp_wire.websocket.frames", logging.CRITICAL)


class WebSocketLayer:
    """The server's side of one WebSocket connection."""

    def __init__(self, max_message_bytes: int) -> None:
        self._protocol = ServerProtocol(origins=[None], max_size=max_message_bytes, logger=_SILENT)
        self._request = bytearray()  # until it is complete
        self._message = bytearray()  # what came so far of one in several frames; a frame of nothing costs nothing
        self._is_in_message = False
        self._ended: str | None = None

    @property
    def ended(self) -> str | None:
        return self._ended

    @property
    def holds_half(self) -> bool:
        return self._is_in_message or bool(self._request or self._protocol.reader.buffer)

    def receive(self, data: bytes) -> bytes:
        if self._protocol.state is State.CONNECTING and self._ended is None:
            data = self._shake_hands(data)
        if not data or self._ended is not None:
            return b""
        self._protocol.receive_data(data)
        packets = b"".join(self._packets())
        if self._ended is None and self._protocol.state is not State.OPEN:
            self._ended = f"WebSocket: {self._protocol.parser_exc or 'closed'}"
        return packets

    def wrap(self, data: bytes) -> bytes:
        if self._protocol.state is not State.OPEN:
            return b""
        for packet in split_packets(data):
            pieces = [packet[at : at + _MAX_FRAME_BYTES] for at in range(0, len(packet), _MAX_FRAME_BYTES)]
            self._protocol.send_binary(pieces[0], fin=len(pieces) == 1)
            for number, piece in enumerate(pieces[1:], start=2):
                self._protocol.send_continuation(piece, fin=number == len(pieces))
        return self.take_answers()

    def take_answers(self) -> bytes:
        return b"".join(self._protocol.data_to_send())

    def farewell(self) -> bytes:
        if self._protocol.state is State.OPEN and not self._protocol.expect_continuation_frame:
            self._protocol.send_close(CloseCode.GOING_AWAY)
        return self.take_answers()

    def _shake_hands(self, data: bytes) -> bytes:
        """Collect the request and answer it; what came after it. A request without an answer is no HTTP at all."""
        self._request += data
        if not _METHOD.startswith(self._request[: len(_METHOD)]):
            self._ended = "not a WebSocket request"
            return b""
        end = self._request.find(_END_OF_REQUEST) + len(_END_OF_REQUEST)
        if end < len(_END_OF_REQUEST):
            if len(self._request) > MAX_REQUEST_BYTES:
                self._ended = "a request without end"
            return b""
        rest = bytes(self._request[end:])
        # Nothing but the request: the parser would go on to frames before the request is accepted.
        self._protocol.receive_data(self._request[:end])
        self._request.clear()
        self._answer(self._protocol.events_received())
        return rest

    def _answer(self, events: list[Event]) -> None:
        for request in events:
            assert isinstance(request, Request)
            self._protocol.send_response(self._protocol.accept(request))
        if self._protocol.state is not State.OPEN:
            self._ended = f"WebSocket refused: {self._protocol.handshake_exc}"

    def _packets(self) -> Iterator[bytes]:
        """The packets in the frames received. Ends early when the peer breaks a rule."""
        for frame in self._protocol.events_received():
            assert isinstance(frame, Frame)
            match frame.opcode:
                case Opcode.BINARY | Opcode.CONT:
                    self._message += frame.data
                    self._is_in_message = not frame.fin
                    if self._is_in_message:
                        continue
                    message = bytes(self._message)
                    self._message.clear()
                    if not message or packet_length(message) != len(message):
                        self._fail(CloseCode.PROTOCOL_ERROR, "a message is one packet")
                        return
                    yield message
                case Opcode.TEXT:
                    self._fail(CloseCode.UNSUPPORTED_DATA, "binary messages only")
                    return
                case _:
                    pass  # PING is answered and CLOSE echoed by the protocol

    def _fail(self, code: CloseCode, reason: str) -> None:
        self._ended = f"WebSocket: {reason}"
        if self._protocol.state is State.OPEN:  # else the frames after it have ended it already
            self._protocol.fail(code, reason)
