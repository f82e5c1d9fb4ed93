# SPDX-License-Identifier: MIT
"""The RPCs of `backend.Backend` that this backend serves: decode, hand over, encode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from chatdelta import Cancelled, Completed, Failed, GenerationRequest, RequestCancelled, StreamEvent, Usage
from chatserving import Answer, EngineHost, HostState, PeerGone, RequestRunner
from localai_proto import backend_pb2 as pb
from localai_proto import backend_pb2_grpc
from vllm_nnrp.grpc_door.decode import decode_predict, is_left_to_core, tools_active
from vllm_nnrp.grpc_door.encode import TextIn, encode_answer, encode_end, encode_events
from vllm_nnrp.grpc_door.errors import Context, abort, rpc_errors
from vllm_nnrp.grpc_door.stall import StallWatch
from vllm_nnrp.grpc_door.task_rpcs import TaskServicer, request_id
from vllm_nnrp.load_options import decode_model_options
from vllm_nnrp.loading import Loader, root_cause
from vllm_nnrp.processes import resident_bytes

SERVES = "this backend serves text generation, scoring, embeddings and reranking only"
STALL_S = 120.0  # a client that takes nothing for so long has lost interest


class TextServicer(TaskServicer):
    """Handlers are coroutines that write, never generators: so each cleans up in its own task.

    `text_in_message`: whether text is in `message` too while tools are active (see encode), where the options of the
    loaded model do not say it.
    """

    def __init__(
        self, host: EngineHost, runner: RequestRunner, loader: Loader, *, text_in_message: bool = False
    ) -> None:
        super().__init__(host, runner, loader)
        self._text_in_message = text_in_message

    async def Health(self, request: pb.HealthMessage, context: Context) -> pb.Reply:
        return pb.Reply(message=b"OK")

    async def LoadModel(self, request: pb.ModelOptions, context: Context) -> pb.Result:
        """A failure is a Result with the reason: users see only that line."""
        try:
            await self._loader.load(await asyncio.to_thread(decode_model_options, request))
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
            with self._observing(rid, "predict"):
                decoded = self._decode(request, rid)
            text_in, max_tokens = self._text_in(request, decoded), decoded.body.get("max_tokens")
            answer = await self._runner.run(decoded, _discard, operation="predict")
            await _refuse_unfinished(answer, context)
            assert isinstance(answer.terminal, Completed)
            return encode_answer(
                answer.terminal, answer.timings, answer.logprobs, text_in=text_in, max_tokens=max_tokens
            )
        raise AssertionError("rpc_errors lets nothing pass")

    async def PredictStream(self, request: pb.PredictOptions, context: Context) -> None:
        rid = request_id()
        async with rpc_errors(context, rid):
            with self._observing(rid, "predict_stream"):
                decoded = self._decode(request, rid)
            writer = _Writer(context, self._text_in(request, decoded))
            try:
                answer = await self._runner.run(decoded, writer.emit, operation="predict_stream")
                await writer.flush()
                await _refuse_unfinished(answer, context)
                await writer.finish(answer, max_tokens=decoded.body.get("max_tokens"))
            except Stalled:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing was read for {STALL_S:g} s")
            except PeerGone:
                return
            finally:
                writer.close()

    def _decode(self, request: pb.PredictOptions, rid: str) -> GenerationRequest:
        info = self._admit(request.ModelIdentity)
        return decode_predict(
            request,
            request_id=rid,
            model=info.model_names[0],
            tool_parser=info.tool_parser is not None,
            multimodal=info.multimodal,
        )

    def _text_in(self, request: pb.PredictOptions, decoded: GenerationRequest) -> TextIn:
        if is_left_to_core(request, decoded):
            return TextIn.MESSAGE
        if not tools_active(decoded, tool_parser=self._host.engine().info.tool_parser is not None):
            return TextIn.BOTH
        said = self._loader.text_in_message
        return TextIn.BOTH if (self._text_in_message if said is None else said) else TextIn.DELTAS


_STATES = {HostState.LOADING: pb.StatusResponse.BUSY, HostState.ERROR: pb.StatusResponse.ERROR}


class Stalled(PeerGone):
    """The client is there and takes nothing. It must not find an OK when it comes back to half an answer."""


class _Writer:
    """Writes one stream's replies, each with the running usage; of the task that makes it. close() it."""

    def __init__(self, context: Context, text_in: TextIn) -> None:
        self._context = context
        self._text_in = text_in
        self._watch = StallWatch(STALL_S)
        self._held: list[StreamEvent] = []
        self._usage = Usage()

    def close(self) -> None:
        self._watch.close()

    async def emit(self, events: Sequence[StreamEvent], usage: Usage, more_follows: bool) -> None:
        """What is there at once leaves in one reply; nothing waits for what is not there yet."""
        self._held += events
        self._usage = usage
        if more_follows:
            return
        # A write wakes gRPC's own thread. A step of the engine has a token for every stream: where the other streams
        # make their replies first, all are written in one go, and that thread is woken a few times and not for each.
        await asyncio.sleep(0)
        await self.flush()

    async def flush(self) -> None:
        """Write what is held back."""
        held, self._held = self._held, []
        for reply in encode_events(held, self._usage, text_in=self._text_in):
            await self.write(reply)

    async def finish(self, answer: Answer, *, max_tokens: int | None) -> None:
        assert isinstance(answer.terminal, Completed)
        for reply in encode_end(answer.terminal, answer.timings, answer.logprobs, max_tokens=max_tokens):
            await self.write(reply)

    async def write(self, reply: pb.Reply) -> None:
        """Waits for flow control. Raises Stalled after STALL_S, PeerGone when the client is gone."""
        try:
            await self._watch.wait(self._context.write(reply))
        except TimeoutError as exc:
            raise Stalled("stalled") from exc
        except grpc.aio.BaseError as exc:
            raise PeerGone("disconnected") from exc


async def _discard(events: Sequence[StreamEvent], usage: Usage, more_follows: bool) -> None:
    """Predict needs only the end: the body is assembled beside the stream."""


async def _refuse_unfinished(answer: Answer, context: Context) -> None:
    match answer.terminal:
        case Failed(error=error):
            await abort(context, error)
        case Cancelled():
            raise RequestCancelled("the request was aborted: the model is being unloaded or the backend stops")


def _refusing(method: str) -> Any:
    async def refuse(self: TextServicer, request: object, context: Context) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method}: {SERVES}")

    refuse.__name__ = method
    return refuse


# Everything else of the contract. (The generated base refuses too, but in a thread and with a traceback.)
for _method in vars(backend_pb2_grpc.BackendServicer):
    if not _method.startswith("_") and _method not in vars(TextServicer) | vars(TaskServicer):
        setattr(TextServicer, _method, _refusing(_method))
