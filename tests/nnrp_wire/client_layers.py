# SPDX-License-Identifier: MIT
"""The client's half of every transport without sockets, made of the ssl module and the `websockets` package."""

from __future__ import annotations

import ssl

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from tests.nnrp_wire.carriers import Carrier


class ClientStream:
    """Bytes in, bytes out. Exchange take_output() and receive() with the server until `is_open`."""

    def __init__(self, carrier: Carrier, context: ssl.SSLContext) -> None:
        self._packets = bytearray()
        self._output: list[bytes] = []
        self._tls: ssl.SSLObject | None = None
        self._websocket: ClientProtocol | None = None
        self._is_shaken = not carrier.is_encrypted
        if carrier.is_encrypted:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        if carrier.is_websocket:
            self._websocket = ClientProtocol(parse_uri("ws://localhost/"), max_size=None)
            self._websocket.send_request(self._websocket.connect())
        self.receive(b"")

    @property
    def is_open(self) -> bool:
        return self._is_shaken and (self._websocket is None or self._websocket.state.name == "OPEN")

    def receive(self, data: bytes) -> None:
        """From the server."""
        data = self._decrypt(data)
        if self._websocket is None:
            self._packets += data
            return
        if data:
            self._websocket.receive_data(data)
        for event in self._websocket.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.CONT):
                self._packets += event.data
        if self._is_shaken:
            self._output.append(self._encrypt(b"".join(self._websocket.data_to_send())))

    def take_packets(self) -> bytes:
        """What the server has sent, unwrapped."""
        packets = bytes(self._packets)
        self._packets.clear()
        return packets

    def take_output(self) -> bytes:
        output = b"".join(self._output)
        self._output.clear()
        return output

    def wrap(self, data: bytes) -> bytes:
        """As the server gets to see it; on a WebSocket one message per packet, as far as there are packets in it."""
        if self._websocket is not None:
            for message in _messages(data):
                self._websocket.send_binary(message)
            data = b"".join(self._websocket.data_to_send())
        return self._encrypt(data)

    def _decrypt(self, data: bytes) -> bytes:
        if self._tls is None:
            return data
        self._incoming.write(data)
        received = b""
        try:
            if not self._is_shaken:
                self._tls.do_handshake()
                self._is_shaken = True
            while chunk := self._tls.read(65536):
                received += chunk
        except ssl.SSLWantReadError:
            pass
        if output := self._outgoing.read():
            self._output.append(output)
        return received

    def _encrypt(self, data: bytes) -> bytes:
        if self._tls is None:
            return data
        if data:
            self._tls.write(data)
        return self._outgoing.read()


def _messages(data: bytes) -> list[bytes]:
    messages = []
    while len(data) >= 40 and data[:4] == b"NNRP":
        size = 40 + int.from_bytes(data[12:16], "little") + int.from_bytes(data[16:20], "little")
        messages.append(data[:size])
        data = data[size:]
    return [*messages, data] if data else messages
