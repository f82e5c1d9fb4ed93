# SPDX-License-Identifier: MIT
"""The RPCs of `backend.Backend` that this backend serves: decode, hand over, encode."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import grpc

from chatdelta import Cancelled, Completed, Failed, GenerationRequest, RequestCancelled, StreamEvent, Usage
from chatserving import Answer, EngineHost, HostState, PeerGone, RequestRunner
from localai_proto import backend_pb2 as pb
from localai_proto import backend_pb2_grpc
from vllm_nnrp.grpc_door.decode import decode_predict, tools_active
from vllm_nnrp.grpc_door.encode import encode_answer, encode_events, encode_final
from vllm_nnrp.grpc_door.errors import Context, abort, check_identity, rpc_errors
from vllm_nnrp.load_options import decode_model_options
from vllm_nnrp.loading import Loader, root_cause
from vllm_nnrp.processes import resident_bytes

STALL_S = 120.0  # a client that takes nothing for so long has lost interest


def request_id() -> str:
    """Ours, not the caller's: two callers may choose the same, and the engine refuses a second."""
    return f"grpc-{uuid.uuid4().hex}"


class TextServicer(backend_pb2_grpc.BackendServicer):
    """Handlers are coroutines that write, never generators: so each cleans up in its own task.

    `text_in_message`: send the text in `message` too while tools are active (see encode).
    """

    def __init__(
        self, host: EngineHost, runner: RequestRunner, loader: Loader, *, text_in_message: bool = False
    ) -> None:
        self._host = host
        self._runner = runner
        self._loader = loader
        self._text_in_message = text_in_message

    async def Health(self, request: pb.HealthMessage, context: Context) -> pb.Reply:
        return pb.Reply(message=b"OK")

    async def LoadModel(self, request: pb.ModelOptions, context: Context) -> pb.Result:
        """A failure is a Result with the reason: users see only that line."""
        try:
            await self._loader.load(decode_model_options(request))
        except Exception as exc:
            return pb.Result(success=False, message=root_cause(exc))
        return pb.Result(success=True, message="model loaded")

    async def Free(self, request: pb.HealthMessage, context: Context) -> pb.Result:
        async with rpc_errors(context, "free"):
            await self._loader.free()
        return pb.Result(success=True, message="model freed")

    async def Status(self, request: pb.HealthMessage, context: Context) -> pb.StatusResponse:
        memory = await asyncio.to_thread(resident_bytes)
        return pb.StatusResponse(
            state=_STATES.get(self._host.state) or self._ready_or_busy(),
            memory=pb.MemoryUsageData(total=sum(memory.values()), breakdown=memory),
        )

    def _ready_or_busy(self) -> pb.StatusResponse.State:
        if self._host.state is HostState.UNINITIALIZED:
            return pb.StatusResponse.UNINITIALIZED
        return pb.StatusResponse.BUSY if self._host.in_flight else pb.StatusResponse.READY

    async def TokenizeString(self, request: pb.PredictOptions, context: Context) -> pb.TokenizationResponse:
        rid = request_id()
        async with rpc_errors(context, rid):
            decoded = self._decode(request, rid)
            with self._host.operation(rid) as engine:
                tokens = await engine.tokenize(decoded)
            return pb.TokenizationResponse(length=len(tokens), tokens=tokens)
        raise AssertionError("rpc_errors lets nothing pass")

    async def Predict(self, request: pb.PredictOptions, context: Context) -> pb.Reply:
        rid = request_id()
        async with rpc_errors(context, rid):
            decoded = self._decode(request, rid)
            answer = await self._runner.run(decoded, _discard, operation="predict")
            await _refuse_unfinished(answer, context)
            assert isinstance(answer.terminal, Completed)
            return encode_answer(answer.terminal, answer.timings, answer.logprobs)
        raise AssertionError("rpc_errors lets nothing pass")

    async def PredictStream(self, request: pb.PredictOptions, context: Context) -> None:
        rid = request_id()
        async with rpc_errors(context, rid):
            decoded = self._decode(request, rid)
            writer = _Writer(context, text_in_message=self._text_in_message or not self._tools_active(decoded))
            try:
                answer = await self._runner.run(decoded, writer.emit, operation="predict_stream")
                await _refuse_unfinished(answer, context)
                await writer.write(encode_final(answer.terminal.usage, answer.timings, answer.logprobs))
            except Stalled:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing was read for {STALL_S:g} s")
            except PeerGone:
                return

    def _decode(self, request: pb.PredictOptions, rid: str) -> GenerationRequest:
        """Raises ModelNotLoaded before it looks at the request: core reloads on that."""
        info = self._host.engine().info
        check_identity(request.ModelIdentity, self._loader.identity)
        return decode_predict(
            request,
            request_id=rid,
            model=info.model_names[0],
            tool_parser=info.tool_parser is not None,
            multimodal=info.multimodal,
        )

    def _tools_active(self, decoded: GenerationRequest) -> bool:
        return tools_active(decoded, tool_parser=self._host.engine().info.tool_parser is not None)


_STATES = {HostState.LOADING: pb.StatusResponse.BUSY, HostState.ERROR: pb.StatusResponse.ERROR}


class Stalled(PeerGone):
    """The client is there and takes nothing. It must not find an OK when it comes back to half an answer."""


class _Writer:
    """Writes one stream's replies, each with the running usage."""

    def __init__(self, context: Context, *, text_in_message: bool) -> None:
        self._context = context
        self._text_in_message = text_in_message

    async def emit(self, events: Sequence[StreamEvent], usage: Usage) -> None:
        for reply in encode_events(events, usage, text_in_message=self._text_in_message):
            await self.write(reply)

    async def write(self, reply: pb.Reply) -> None:
        """Waits for flow control. Raises Stalled after STALL_S, PeerGone when the client is gone."""
        try:
            async with asyncio.timeout(STALL_S):
                await self._context.write(reply)
        except TimeoutError as exc:
            raise Stalled("stalled") from exc
        except grpc.aio.BaseError as exc:
            raise PeerGone("disconnected") from exc


async def _discard(events: Sequence[StreamEvent], usage: Usage) -> None:
    """Predict needs only the end: the body is assembled beside the stream."""


async def _refuse_unfinished(answer: Answer, context: Context) -> None:
    match answer.terminal:
        case Failed(error=error):
            await abort(context, error)
        case Cancelled():
            raise RequestCancelled("the request was aborted: the model is being unloaded or the backend stops")


def _refusing(method: str) -> Any:
    async def refuse(self: TextServicer, request: object, context: Context) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method}: this backend serves text generation only")

    refuse.__name__ = method
    return refuse


# Everything else of the contract. (The generated base refuses too, but in a thread and with a traceback.)
for _method in vars(backend_pb2_grpc.BackendServicer):
    if not _method.startswith("_") and _method not in vars(TextServicer):
        setattr(TextServicer, _method, _refusing(_method))
