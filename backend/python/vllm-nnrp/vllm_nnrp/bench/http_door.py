# SPDX-License-Identifier: MIT
"""vLLM's HTTP/SSE read by raw sockets, one connection a stream: no client library, as little work as NNRP's reader."""

from __future__ import annotations

import asyncio
import json
import time
from typing import cast

from vllm_nnrp.addresses import Address
from vllm_nnrp.bench.asking import Ask, Stream, usage_in

_OK = b"HTTP/1.1 200"
_END = b"data: [DONE]"
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
TAIL_BYTES = 600  # of the last data: usage and the end are in it


class HttpConnection(asyncio.Protocol):
    """One request at a time; the connection is kept for the next one."""

    def __init__(self, pattern: bytes) -> None:
        self._pattern = pattern
        self._stream: Stream | None = None
        self._head = self._tail = b""
        self._is_ok = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        if self._stream is not None and not self._stream.ended_s:
            self._stream.end(time.monotonic(), "the connection was closed")

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        stream = self._stream
        if stream is None:
            return
        keep = len(self._pattern) - 1
        stream.receive(now_s, (self._tail[-keep:] + data).count(self._pattern))
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if not self._is_ok:
            self._head += data
            if len(self._head) < len(_OK):
                return
            self._is_ok = self._head.startswith(_OK)
            if not self._is_ok:
                stream.end(now_s, self._head[:300].decode(errors="replace"))
                return
        if self._tail.endswith(_LAST_CHUNK) and _END in self._tail:
            stream.usage_tokens = usage_in(self._tail)
            stream.end(now_s)

    def take(self, stream: Stream) -> None:
        """What comes from now on is its answer."""
        self._stream, self._head, self._tail, self._is_ok = stream, b"", b"", False

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        if self._stream is not None and not self._stream.ended_s:
            self._stream.end(time.monotonic())
        if self._transport is not None:
            self._transport.close()


class HttpDoor:
    """One connection for each stream, kept alive between requests."""

    name = "http"

    def __init__(self, address: Address, pattern: bytes, model: str) -> None:
        self._address = address
        self._pattern, self._model = pattern, model
        self._connections: list[HttpConnection] = []
        self._free: list[HttpConnection] = []

    async def open(self, streams: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(streams):
            _, connection = await loop.create_connection(
                lambda: HttpConnection(self._pattern), self._address.host, self._address.port
            )
            self._connections.append(connection)
        self._free = list(self._connections)

    def ask(self, ask: Ask) -> Stream:
        stream = Stream(ask.seed, time.monotonic())
        connection = self._free.pop()
        stream.handle = connection
        connection.take(stream)
        connection.send(self._request(ask))
        return stream

    def _request(self, ask: Ask) -> bytes:
        body = json.dumps(ask.body(self._model)).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\n"
            f"Host: {self._address}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        return head.encode() + _HEAD_END + body

    def cancel(self, stream: Stream) -> None:
        stream.handle.close()

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections, self._free = [], []
        await asyncio.sleep(0)
