# SPDX-License-Identifier: MIT
"""The chat over gRPC: one PredictStream per question, its replies as client events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from localai_proto import backend_pb2 as pb
from localai_proto import backend_pb2_grpc
from vllm_nnrp.client.conversation import Json, Question
from vllm_nnrp.client.events import (
    USER_CANCELLED,
    Cancelled,
    ClientEvent,
    Done,
    Error,
    Reasoning,
    Text,
    ToolCallArguments,
    ToolCallDone,
    ToolCallError,
    ToolCallStart,
    Usage,
)
from vllm_nnrp.client.transport import ClientError, GrpcTarget

CONNECT_S = 10.0
NO_SEED = -1
CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", 50 * 1024 * 1024),
    ("grpc.max_receive_message_length", 50 * 1024 * 1024),
    ("grpc.enable_http_proxy", 0),  # the backend is on this machine or this network
)


def encode_question(question: Question) -> pb.PredictOptions:
    """What proto3 cannot leave out is neutral here: no seed, zero where zero is off."""
    sampling = question.sampling
    metadata = {}
    if sampling.enable_thinking is not None:
        metadata["enable_thinking"] = "true" if sampling.enable_thinking else "false"
    return pb.PredictOptions(
        UseTokenizerTemplate=True,
        Messages=[_encode_message(message) for message in question.messages],
        Tools=json.dumps(list(question.tools)) if question.tools else "",
        Temperature=sampling.temperature,
        Tokens=sampling.max_tokens or 0,
        Seed=NO_SEED,
        Metadata=metadata,
    )


def _encode_message(message: Json) -> pb.Message:
    calls = message.get("tool_calls")
    return pb.Message(
        role=message["role"],
        content=message.get("content") or "",
        name=message.get("name", ""),
        tool_call_id=message.get("tool_call_id", ""),
        tool_calls=json.dumps(calls) if calls else "",
    )


@dataclass(slots=True)
class _OpenCall:
    index: int
    call_id: str
    name: str
    pieces: list[str] = field(default_factory=list)

    def end(self) -> ToolCallDone | ToolCallError:
        """This wire does not say how a call ended; its arguments do."""
        arguments = "".join(self.pieces)
        try:
            is_object = isinstance(json.loads(arguments), dict)
        except (ValueError, RecursionError):
            is_object = False
        if is_object:
            return ToolCallDone(self.index, self.call_id, self.name, arguments)
        return ToolCallError(self.index, self.call_id, "incomplete", "the arguments are not a whole JSON object")


class ReplyDecoder:
    """Replies of one stream in, client events out. A call ends when the next one starts or the stream ends."""

    def __init__(self, max_tokens: int | None) -> None:
        self._max_tokens = max_tokens
        self._call: _OpenCall | None = None
        self._has_calls = False
        self._usage = Usage(0, 0)

    def feed(self, reply: pb.Reply) -> list[ClientEvent]:
        if reply.tokens or reply.prompt_tokens:
            self._usage = Usage(reply.prompt_tokens, reply.tokens)
        events: list[ClientEvent] = []
        for delta in reply.chat_deltas:
            if delta.reasoning_content:
                events.append(Reasoning(delta.reasoning_content))
            if delta.content:
                events.append(Text(delta.content))
            for call in delta.tool_calls:
                events.extend(self._feed_call(call))
        return events

    def _feed_call(self, delta: pb.ToolCallDelta) -> list[ClientEvent]:
        events: list[ClientEvent] = []
        if self._call is None or delta.index != self._call.index:
            events.extend(self._end_call())
            self._call = _OpenCall(delta.index, delta.id, delta.name)
            self._has_calls = True
            events.append(ToolCallStart(delta.index, delta.id, delta.name))
        if delta.arguments:
            self._call.pieces.append(delta.arguments)
            events.append(ToolCallArguments(delta.index, delta.arguments))
        return events

    def finish(self) -> list[ClientEvent]:
        """The end of a stream with status OK."""
        return [*self._end_call(), self._usage, Done(self._finish_reason())]

    def abandon(self, code: str, message: str) -> list[ClientEvent]:
        """The end of any other stream, before its Ending."""
        call, self._call = self._call, None
        return [ToolCallError(call.index, call.call_id, code, message)] if call else []

    def _end_call(self) -> list[ClientEvent]:
        call, self._call = self._call, None
        return [call.end()] if call else []

    def _finish_reason(self) -> str:
        """The contract has no field for it; this is how LocalAI itself works it out."""
        if self._max_tokens and self._usage.completion_tokens >= self._max_tokens:
            return "length"
        return "tool_calls" if self._has_calls else "stop"


class GrpcClient:
    """ChatClient over an open channel. Made by open_grpc_client()."""

    def __init__(self, channel: grpc.aio.Channel, target: GrpcTarget) -> None:
        self._stub: Any = backend_pb2_grpc.BackendStub(channel)
        self._target = target
        self._metadata = (("authorization", f"Bearer {target.token}"),) if target.token else ()

    async def check(self) -> None:
        """Raises ClientError unless Health answers."""
        try:
            await self._stub.Health(pb.HealthMessage(), metadata=self._metadata, timeout=CONNECT_S)
        except grpc.aio.AioRpcError as exc:
            raise ClientError(f"cannot talk gRPC to {self._target}: {_explain(exc)}") from exc

    async def ask(self, question: Question, cancel: asyncio.Event) -> AsyncGenerator[ClientEvent, None]:
        decoder = ReplyDecoder(question.sampling.max_tokens)
        call = self._stub.PredictStream(encode_question(question), metadata=self._metadata)
        watch = asyncio.create_task(_cancel_when(cancel, call))
        try:
            async for reply in call:
                for event in decoder.feed(reply):
                    yield event
            last = decoder.finish()
        except asyncio.CancelledError:
            if not cancel.is_set():
                raise
            last = [*decoder.abandon("cancelled", "cancelled"), Cancelled(USER_CANCELLED)]
        except grpc.aio.AioRpcError as exc:
            code, message = exc.code().name.lower(), _explain(exc)
            last = [*decoder.abandon(code, message), Error(code, message)]
        finally:
            watch.cancel()
            call.cancel()
        for event in last:
            yield event


async def _cancel_when(cancel: asyncio.Event, call: Any) -> None:
    await cancel.wait()
    call.cancel()


def _explain(error: grpc.aio.AioRpcError) -> str:
    details = " ".join((error.details() or "").split()) or error.code().name.lower()
    match error.code():
        case grpc.StatusCode.UNAVAILABLE if "refused" in details.lower():
            return "connection refused"
        case grpc.StatusCode.UNAVAILABLE if "socket closed" in details.lower():
            return "something listens there, but it closed the connection: does it speak gRPC?"
        case grpc.StatusCode.UNAUTHENTICATED:
            return f"{details} (set LOCALAI_GRPC_AUTH_TOKEN)"
        case _:
            return details


@asynccontextmanager
async def open_grpc_client(target: GrpcTarget) -> AsyncIterator[GrpcClient]:
    """Raises ClientError if the server does not answer."""
    async with grpc.aio.insecure_channel(str(target.address), options=CHANNEL_OPTIONS) as channel:
        client = GrpcClient(channel, target)
        await client.check()
        yield client
