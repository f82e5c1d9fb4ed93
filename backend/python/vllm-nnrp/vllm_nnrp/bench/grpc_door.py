# SPDX-License-Identifier: MIT
"""gRPC read by a raw socket: one connection for all streams, as LocalAI has one to its backend."""

from __future__ import annotations

import asyncio
import re
import time

from localai_proto import backend_pb2 as pb
from vllm_nnrp.addresses import Address
from vllm_nnrp.bench.asking import Ask, Stream
from vllm_nnrp.bench.http2 import Http2Client, literal

PREDICT_STREAM = b"/backend.Backend/PredictStream"
# HPACK: POST and http are in the static table, as are the names of the path, the authority and the content type.
_METHOD_AND_SCHEME, _PATH, _AUTHORITY, _CONTENT_TYPE = b"\x83\x86", b"\x04", b"\x01", b"\x0f\x10"
_TE = b"\x00" + literal(b"te") + literal(b"trailers")
_STATUS = re.compile(rb"grpc-status.(\d+)", re.DOTALL)
_PREFIX_BYTES = 5  # of a message: whether it is compressed, and its length


class GrpcConnection(Http2Client):
    def __init__(self, authority: str) -> None:
        super().__init__()
        self._headers = b"".join(
            (
                _METHOD_AND_SCHEME,
                *(_PATH, literal(PREDICT_STREAM)),
                *(_AUTHORITY, literal(authority.encode())),
                *(_CONTENT_TYPE, literal(b"application/grpc")),
                _TE,
            )
        )
        self._streams: dict[int, tuple[Stream, bytearray]] = {}

    def ask(self, ask: Ask) -> Stream:
        stream = Stream(ask.seed, time.monotonic())
        message = ask.options().SerializeToString()
        stream_id = self.request(self._headers, b"\0" + len(message).to_bytes(4, "big") + message)
        stream.handle = (self, stream_id)
        self._streams[stream_id] = stream, bytearray()
        return stream

    def cancel(self, stream_id: int) -> None:
        """What is on its way is nobody's any more, as with every HTTP/2 client."""
        self.reset(stream_id)
        stream, _ = self._streams.pop(stream_id)
        stream.end(time.monotonic())

    def data_of(self, stream_id: int, data: bytes) -> None:
        """Replies carry the running count of tokens."""
        if stream_id not in self._streams:
            return
        now_s = time.monotonic()
        stream, held = self._streams[stream_id]
        held += data
        while len(held) >= _PREFIX_BYTES:
            end = _PREFIX_BYTES + int.from_bytes(held[1:_PREFIX_BYTES], "big")
            if len(held) < end:
                return
            tokens = pb.Reply.FromString(bytes(held[_PREFIX_BYTES:end])).tokens
            del held[:end]
            stream.receive(now_s, tokens - stream.tokens)
            stream.usage_tokens = tokens

    def headers_of(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        if not is_end or stream_id not in self._streams:
            return
        stream, _ = self._streams.pop(stream_id)
        status = _STATUS.search(block)
        stream.end(time.monotonic(), "" if status and status[1] == b"0" else f"trailers {block!r}")

    def lost(self, stream_id: int | None, why: str) -> None:
        for each in list(self._streams) if stream_id is None else [stream_id]:
            if each in self._streams:
                stream, _ = self._streams.pop(each)
                stream.end(time.monotonic(), why)


class GrpcDoor:
    name = "grpc"

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connections: list[GrpcConnection] = []

    async def open(self, streams: int) -> None:
        await self.open_connections(1)

    async def open_connections(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            _, connection = await loop.create_connection(
                lambda: GrpcConnection(str(self._address)), self._address.host, self._address.port
            )
            self._connections.append(connection)

    def ask(self, ask: Ask) -> Stream:
        return self._connections[0].ask(ask)

    def cancel(self, stream: Stream) -> None:
        connection, stream_id = stream.handle
        connection.cancel(stream_id)

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections = []
        await asyncio.sleep(0)
