# SPDX-License-Identifier: MIT
"""Before the servicer: who may call (the token of LOCALAI_GRPC_AUTH_TOKEN, first of all), and what is no message."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from vllm_nnrp.grpc_door.errors import Context

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # generic in the stubs only
Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]]


class BearerAuth(grpc.aio.ServerInterceptor):
    """Outermost interceptor: without the right `authorization: Bearer …` an RPC ends as UNAUTHENTICATED.

    The refusal does not ask the inner chain for a handler and is not built to the method's shape: a stream-stream
    handler can end any RPC on the wire. (Wrapping the refusal to fit another handler is how a refused call came to be
    answered OK in LocalAI's shared Python code.)
    """

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()
        self._refusal: Handler = grpc.stream_stream_rpc_method_handler(_refuse)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        if not self._allowed(handler_call_details):
            return self._refusal
        return await continuation(handler_call_details)

    def _allowed(self, details: grpc.HandlerCallDetails) -> bool:
        given = [value for key, value in details.invocation_metadata if key == "authorization"]
        if len(given) != 1:
            return False
        value = given[0]
        return hmac.compare_digest(value if isinstance(value, bytes) else value.encode(), self._expected)


async def _refuse(_requests: object, context: Context) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a valid bearer token is required")


class WholeMessages(grpc.aio.ServerInterceptor):
    """Ends an RPC whose request is no message of its type as INVALID_ARGUMENT: grpc.aio would say UNKNOWN.

    Every handler of a single request must be a coroutine function, as TextServicer's are.
    """

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        return handler if handler is None or handler.request_streaming else _whole(handler)


def _whole(handler: Any) -> Handler:
    """The same handler of a single request, for whole messages only."""
    kind = "unary_stream" if handler.response_streaming else "unary_unary"
    serve = getattr(handler, kind)

    def decode(data: bytes) -> Any:
        try:
            return handler.request_deserializer(data)
        except DecodeError:
            return None

    async def serve_whole(request: Any, context: Context) -> Any:
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is no message of its type")
        return await serve(request, context)

    whole: Handler = handler._replace(request_deserializer=decode, **{kind: serve_whole})
    return whole
