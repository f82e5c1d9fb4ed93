# SPDX-License-Identifier: MIT
"""Who may call: the bearer token of LOCALAI_GRPC_AUTH_TOKEN, checked before anything else of an RPC happens."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc

from vllm_nnrp.grpc_door.errors import Context

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # generic in the stubs only


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
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
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
