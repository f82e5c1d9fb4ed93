# SPDX-License-Identifier: MIT
"""Errors on this wire: one table from ErrorCode to status, and where exceptions become statuses.

Never UNAVAILABLE: core reads that as a dead backend and evicts it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeAlias

import grpc

from chatdelta import BackendError, ErrorCode, ErrorInfo, UnsupportedModel

log = logging.getLogger(__name__)

STATUS: Mapping[ErrorCode, grpc.StatusCode] = MappingProxyType(
    {
        ErrorCode.INVALID_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
        ErrorCode.UNSUPPORTED_OPERATION: grpc.StatusCode.UNIMPLEMENTED,
        ErrorCode.UNSUPPORTED_MODEL: grpc.StatusCode.NOT_FOUND,
        ErrorCode.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
        ErrorCode.MODEL_NOT_LOADED: grpc.StatusCode.FAILED_PRECONDITION,
        ErrorCode.OVERLOADED: grpc.StatusCode.RESOURCE_EXHAUSTED,
        ErrorCode.TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
        ErrorCode.CANCELLED: grpc.StatusCode.CANCELLED,
        ErrorCode.BACKEND_ERROR: grpc.StatusCode.INTERNAL,
        ErrorCode.ENGINE_DEAD: grpc.StatusCode.INTERNAL,
    }
)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # generic in the stubs only


async def abort(context: Context, error: ErrorInfo) -> None:
    """End the RPC with the status of `error`; raises, so nothing runs after it."""
    await context.abort(STATUS[error.kind], error.message)


@asynccontextmanager
async def rpc_errors(
    context: Context, request_id: str, *, too_long: grpc.StatusCode = STATUS[ErrorCode.INVALID_REQUEST]
) -> AsyncIterator[None]:
    """Turn what is raised inside into the RPC's status; the unforeseen is logged and told in general words.

    `too_long` is the status for more text than the model takes.
    """
    try:
        yield
    except BackendError as exc:
        if exc.code == "context_length_exceeded":
            await context.abort(too_long, str(exc))
        await abort(context, exc.info())
    except grpc.aio.AbortError:
        raise
    except Exception:
        log.exception("RPC failed unexpectedly", extra={"request_id": request_id})
        await context.abort(grpc.StatusCode.INTERNAL, f"internal error; the log has the details ({request_id})")


def check_identity(wanted: str, loaded: str) -> None:
    """Raise UnsupportedModel if the caller means another model than the loaded one; empty is "don't care".

    Core looks for exactly these words beside NOT_FOUND: it may have reached a port that changed hands.
    """
    if wanted and loaded and wanted != loaded:
        raise UnsupportedModel("model identity mismatch: another model is loaded here")
