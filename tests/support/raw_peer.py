# SPDX-License-Identifier: MIT
"""A client made of hand-built frames, on every transport: nothing of it comes from the carrier under test."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import cast

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import NetworkAddress, QuicConnection
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from tests.support import wire_frames as w

TIMEOUT_S = 10.0


class RawPeer:
    """One connection. On a plain byte stream frames are sent as they are; see WebSocketPeer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def tcp(cls, port: int, tls: ssl.SSLContext | None = None) -> RawPeer:
        name = None if tls is None else "localhost"
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name))

    @classmethod
    async def unix(cls, path: str) -> RawPeer:
        return cls(*await asyncio.open_unix_connection(path))

    async def opened(self, *frames: bytes) -> RawPeer:
        """Hello and session 1, its answers read; then `frames` sent."""
        self.send(w.hello(), w.session_open())
        assert [(await self.reply()).kind for _ in range(2)] == [w.SERVER_HELLO_ACK, w.SESSION_OPEN_ACK]
        self.send(*frames)
        return self

    def send(self, *frames: bytes) -> None:
        self.send_raw(b"".join(frames))

    def send_raw(self, data: bytes) -> None:
        """Bytes of the stream, whatever they are; nowhere once the connection is closed, as with any socket."""
        if not self.writer.is_closing():
            self.writer.write(data)

    async def reply(self, timeout_s: float = TIMEOUT_S) -> w.Reply:
        async with asyncio.timeout(timeout_s):
            head = await self._exactly(40)
            fields = w.HEADER.unpack(head)
            (reply,) = w.take_apart(head + await self._exactly(fields[6] + fields[7]))
            return reply

    async def replies(self, count: int) -> list[int]:
        """The kinds of the next frames."""
        return [(await self.reply()).kind for _ in range(count)]

    async def _exactly(self, size: int) -> bytes:
        return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """Everything until the server closes, as it comes over the wire."""
        received = bytearray()
        async with asyncio.timeout(TIMEOUT_S):
            try:
                while data := await self.reader.read(65536):
                    received += data
            except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
                pass
        return bytes(received)

    def stop_reading(self) -> None:
        """What is on its way stays in the kernel's buffers, here kept small, and then at the server."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        self._transport.pause_reading()

    def read_on(self) -> None:
        self._transport.resume_reading()

    @property
    def _transport(self) -> asyncio.Transport:
        return cast(asyncio.Transport, self.writer.transport)

    @property
    def is_closed(self) -> bool:
        """By the server: an end of stream, or a reset if it left bytes of ours unread."""
        return self.reader.at_eof() or self.reader.exception() is not None

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


class WebSocketPeer(RawPeer):
    """Each frame in a binary message of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, uri: str) -> None:
        super().__init__(reader, writer)
        self.protocol = ClientProtocol(parse_uri(uri), max_size=64 * 1024 * 1024)
        self._received = bytearray()
        self.control: list[Frame] = []  # PING, PONG and CLOSE of the server

    @classmethod
    async def websocket(cls, port: int, tls: ssl.SSLContext | None = None) -> WebSocketPeer:
        stream = await RawPeer.tcp(port, tls)
        scheme = "ws" if tls is None else "wss"
        peer = cls(stream.reader, stream.writer, f"{scheme}://localhost:{port}/any/path")
        peer.protocol.send_request(peer.protocol.connect())
        peer._write()
        async with asyncio.timeout(TIMEOUT_S):
            while peer.protocol.state.name == "CONNECTING":
                peer._take(await stream.reader.read(65536))
        assert peer.protocol.handshake_exc is None
        return peer

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self.protocol.send_binary(frame)
        self._write()

    def send_raw(self, data: bytes) -> None:
        """Bytes in one binary message, whatever they are."""
        self.send(data)

    def _write(self) -> None:
        self.writer.write(b"".join(self.protocol.data_to_send()))

    def _take(self, data: bytes) -> None:
        if not data:
            raise asyncio.IncompleteReadError(bytes(self._received), None)
        self.protocol.receive_data(data)
        for event in self.protocol.events_received():
            if isinstance(event, Frame):
                if event.opcode in (Opcode.BINARY, Opcode.CONT):
                    self._received += event.data
                else:
                    self.control.append(event)

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            self._take(await self.reader.read(65536))
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    async def control_frame(self) -> Frame:
        """The next PING, PONG or CLOSE."""
        async with asyncio.timeout(TIMEOUT_S):
            while not self.control:
                self._take(await self.reader.read(65536))
        return self.control.pop(0)


class QuicPeer(RawPeer):
    """On the one stream of a QUIC connection. One that does not read hears nothing: it does not even acknowledge."""

    def __init__(self, protocol: _QuicClient, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.protocol = protocol

    @classmethod
    async def quic(cls, port: int, trust: bytes) -> QuicPeer:
        """`trust`: the PEM of the authority."""
        configuration = QuicConfiguration(is_client=True, server_name="localhost", cadata=trust)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_datagram_endpoint(
            lambda: _QuicClient(QuicConnection(configuration=configuration)), local_addr=("127.0.0.1", 0)
        )
        protocol.connect(("127.0.0.1", port))
        async with asyncio.timeout(TIMEOUT_S):
            await protocol.wait_connected()
        return cls(protocol, *await protocol.create_stream())

    def stop_reading(self) -> None:
        self.protocol.is_deaf = True

    def read_on(self) -> None:
        self.protocol.is_deaf = False

    async def close(self) -> None:
        self.protocol.is_deaf = False
        self.writer.close()
        self.reader.feed_eof()
        self.protocol.close()
        self.protocol.shut()
        await asyncio.sleep(0)


class _QuicClient(QuicConnectionProtocol):
    is_deaf = False
    heard = 0  # datagrams

    def datagram_received(self, data: bytes | str, addr: NetworkAddress) -> None:
        if not self.is_deaf:
            self.heard += 1
            super().datagram_received(data, addr)

    def shut(self) -> None:
        """Its socket and its timer."""
        if self._timer is not None:
            self._timer.cancel()
        assert self._transport is not None
        self._transport.close()
