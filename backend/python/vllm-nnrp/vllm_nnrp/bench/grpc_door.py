# SPDX-License-Identifier: MIT
"""gRPC read with grpc.aio, as its clients are: one channel for all streams, as LocalAI has one to its backend."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc

from localai_proto import backend_pb2 as pb
from vllm_nnrp.bench.asking import Ask, Stream

MAX_MESSAGE_BYTES = 50 * 1024 * 1024
_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # or channels to one address would share a connection
)


class GrpcDoor:
    name = "grpc"

    def __init__(self, address: str) -> None:
        self._address = address
        self._channels: list[grpc.aio.Channel] = []
        self._predict: Any = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, streams: int) -> None:
        await self.open_channels(1)

    async def open_channels(self, count: int) -> None:
        for _ in range(count):
            channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
            await channel.channel_ready()
            self._channels.append(channel)
        self._predict = self._channels[0].unary_stream(
            "/backend.Backend/PredictStream",
            request_serializer=pb.PredictOptions.SerializeToString,
            response_deserializer=pb.Reply.FromString,
        )

    def ask(self, ask: Ask) -> Stream:
        stream = Stream(ask.seed, time.monotonic())
        call = self._predict(ask.options())
        stream.handle = call
        task = asyncio.get_running_loop().create_task(_read(call, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return stream

    def cancel(self, stream: Stream) -> None:
        stream.handle.cancel()

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
        self._channels = []
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))


async def _read(call: Any, stream: Stream) -> None:
    """Replies carry the running count of tokens."""
    try:
        while (reply := await call.read()) is not grpc.aio.EOF:
            now_s = time.monotonic()
            stream.receive(now_s, reply.tokens - stream.tokens)
            stream.usage_tokens = reply.tokens
        stream.end(time.monotonic())
    except asyncio.CancelledError:
        stream.end(time.monotonic())
    except grpc.aio.AioRpcError as exc:
        stream.end(time.monotonic(), f"{exc.code()}: {exc.details()}")
