# SPDX-License-Identifier: MIT
"""NNRP read by a raw socket: the SDK's Python client takes about 10,000 events a second and would be what is measured.

Frames are built with the SDK's codecs and cut by the carrier's own reader; nothing is decoded but what is counted.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import cast

from nnrp.core import (
    ClientHelloMetadata,
    FrameSubmitMetadata,
    InputProfile,
    MessageType,
    PayloadKind,
    ResultPushMetadata,
    SessionOpenMetadata,
    SessionPriorityClass,
    TileIndexMode,
)
from nnrp.core.packet import build_typed_payload_frame, pack_body, pack_typed_payload_frames
from nnrp.runtime import ControlRequestMetadata, RuntimeRole
from nnrp.schema import TOKEN_DELTA_SCHEMA_ID, TOKEN_DELTA_SCHEMA_VERSION, StandardProfile, StreamSemantics

from nnrp_wire.limits import MAX_PACKET_BYTES
from nnrp_wire.wire import Frame, FrameReader, packet
from vllm_nnrp.addresses import NetworkUrl, NnrpUrl, SocketUrl
from vllm_nnrp.bench.asking import ANSWER_S, Ask, BenchFailed, Stream, usage_in

OPERATIONS_PER_SESSION = 64
USER_CANCELLED = 1
SUCCESS = 200
_PARTIAL, _RESULT = int(MessageType.PARTIAL_RESULT), int(MessageType.RESULT_PUSH)
_DROPS = (int(MessageType.RESULT_DROP_REASON), int(MessageType.RESULT_DROP))
_HELLO_ACK, _OPEN_ACK = int(MessageType.SERVER_HELLO_ACK), int(MessageType.SESSION_OPEN_ACK)


class NnrpConnection(asyncio.Protocol):
    """One connection, its sessions 1, 2, … . `pattern` is the text of one token."""

    def __init__(self, pattern: bytes, model: str) -> None:
        self._pattern = pattern
        self._model = model
        self._frames = FrameReader(MAX_PACKET_BYTES)
        self._streams: dict[tuple[int, int], Stream] = {}
        self._operations = itertools.count(1)
        self._awaited: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None
        self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._awaited.put_nowait(None)
        if self._is_closed:
            return
        for stream in self._streams.values():
            if not stream.ended_s:
                stream.end(time.monotonic(), "the connection was closed")

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        self._frames.feed(data)
        while (frame := self._frames.next_frame()) is not None:
            kind = frame.message_type
            if kind == _PARTIAL:
                self._streams[frame.session_id, frame.frame_id].receive(now_s, frame.body.count(self._pattern))
            elif kind == _RESULT:
                self._ended(frame, now_s)
            elif kind in _DROPS:
                stream = self._streams[frame.session_id, frame.frame_id]
                stream.end(now_s, "" if stream.handle is None else "the operation was dropped")
            elif kind in (_HELLO_ACK, _OPEN_ACK):
                self._awaited.put_nowait(frame)

    def _ended(self, frame: Frame, now_s: float) -> None:
        stream = self._streams[frame.session_id, frame.frame_id]
        status: int = ResultPushMetadata.unpack(frame.metadata).status_code
        stream.usage_tokens = usage_in(frame.body)
        stream.end(now_s, "" if status == SUCCESS else f"status {status}: {frame.body[-300:]!r}")

    async def hello(self) -> None:
        metadata = ClientHelloMetadata(
            min_version_major=1, max_version_major=1, supported_wire_format_bitmap=1, supported_profile_bitmap=3,
            supported_payload_kind_bitmap=0x7F, supported_codec_bitmap=1, supported_compression_bitmap=1,
            supported_dtype_bitmap=1, supported_layout_bitmap=1, cache_digest_bitmap=1, cache_object_bitmap=0,
            cache_namespace_count=0, max_lane_count=1, max_cache_entries=0, max_cache_bytes=0,
            target_cadence_x100=6000, latency_budget_ms=50, quality_tier=1, degrade_policy=2, requested_session_id=0,
            auth_bytes=0, control_extension_bytes=0,
        )  # fmt: skip
        await self._exchange(packet(MessageType.CLIENT_HELLO, metadata=metadata.pack()))

    async def open_session(self, tag: int) -> None:
        metadata = SessionOpenMetadata(
            requested_session_id=0, profile_id=int(StandardProfile.TOKEN), priority_class=SessionPriorityClass(1),
            session_flags=0, schema_id=TOKEN_DELTA_SCHEMA_ID, schema_version=TOKEN_DELTA_SCHEMA_VERSION,
            default_deadline_ms=0, max_in_flight_operations=OPERATIONS_PER_SESSION, lease_ttl_hint_ms=30_000,
            resume_token_bytes=0, auth_bytes=0, session_extension_bytes=0, client_session_tag=tag,
        )  # fmt: skip
        await self._exchange(packet(MessageType.SESSION_OPEN, metadata=metadata.pack()))

    async def _exchange(self, request: bytes) -> None:
        self._write(request)
        async with asyncio.timeout(ANSWER_S):
            if await self._awaited.get() is None:
                raise BenchFailed("the NNRP server closed the connection")

    def ask(self, session_id: int, ask: Ask) -> Stream:
        operation_id = next(self._operations)
        stream = Stream(ask.seed, time.monotonic())
        self._streams[session_id, operation_id] = stream
        frame = build_typed_payload_frame(
            PayloadKind.STRUCTURED_EVENT, ask.envelope(self._model), stream_semantics=StreamSemantics.SNAPSHOT
        )
        descriptors, payloads = pack_typed_payload_frames([frame])
        body = pack_body(typed_payload_descriptor_region=descriptors, typed_payload_frame_region=payloads)
        stream.handle = (self, session_id, operation_id)
        metadata = _submit_metadata(operation_id)
        self._write(
            packet(MessageType.FRAME_SUBMIT, session_id=session_id, frame_id=operation_id, metadata=metadata, body=body)
        )
        return stream

    def cancel(self, session_id: int, operation_id: int) -> None:
        metadata = ControlRequestMetadata(operation_id, 1, USER_CANCELLED, RuntimeRole.CLIENT, 0, 0)
        self._write(packet(MessageType.CANCEL, session_id=session_id, frame_id=operation_id, metadata=metadata.pack()))

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()


def _submit_metadata(operation_id: int) -> bytes:
    return FrameSubmitMetadata(
        src_width=0, src_height=0, tile_width=0, tile_height=0, tile_count=0, section_count=0, frame_class=0,
        input_profile=InputProfile(0), tile_index_mode=TileIndexMode(1), reserved0=0, latency_budget_ms=0,
        target_fps_x100=0, retry_of_frame=0, tile_base_id=0, camera_bytes=0, tile_index_bytes=0,
        operation_id=operation_id, payload_kind_bitmap=PayloadKind.STRUCTURED_EVENT, payload_frame_count=1,
    ).pack()  # fmt: skip


class NnrpDoor:
    """`each_alone`: a connection and a session for each stream; else one connection, a session for 64 of them."""

    def __init__(self, name: str, url: NnrpUrl, pattern: bytes, model: str, *, each_alone: bool = False) -> None:
        self.name = name
        self._url = url
        self._pattern, self._model = pattern, model
        self._each_alone = each_alone
        self._places: list[tuple[NnrpConnection, int]] = []
        self._connections: list[NnrpConnection] = []
        self._next = itertools.count()

    async def open(self, streams: int) -> None:
        sessions = 1 if self._each_alone else -(-streams // OPERATIONS_PER_SESSION)
        await self.open_sessions(streams if self._each_alone else 1, sessions)

    async def open_sessions(self, connections: int, sessions: int) -> None:
        """So many sessions on each of so many connections."""
        self._next = itertools.count()
        for _ in range(connections):
            connection = await self._connect()
            await connection.hello()
            for session_id in range(1, sessions + 1):
                await connection.open_session(session_id)
                self._places.append((connection, session_id))

    async def _connect(self) -> NnrpConnection:
        loop = asyncio.get_running_loop()

        def make() -> NnrpConnection:
            return NnrpConnection(self._pattern, self._model)

        if isinstance(self._url, SocketUrl):
            _, connection = await loop.create_unix_connection(make, self._url.path)
        else:
            assert isinstance(self._url, NetworkUrl)
            _, connection = await loop.create_connection(make, self._url.address.host, self._url.address.port)
        self._connections.append(connection)
        return connection

    def ask(self, ask: Ask) -> Stream:
        connection, session_id = self._places[next(self._next) % len(self._places)]
        return connection.ask(session_id, ask)

    def cancel(self, stream: Stream) -> None:
        connection, session_id, operation_id = stream.handle
        stream.handle = None  # its drop is no failure
        connection.cancel(session_id, operation_id)

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections, self._places = [], []
        await asyncio.sleep(0)
