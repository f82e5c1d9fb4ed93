# SPDX-License-Identifier: MIT
"""The one error taxonomy: what may be told to a peer, and the profile's wording of it.

Each listener has a table from `ErrorCode` to its own wire; a test keeps every table complete. Texts never carry paths,
addresses or tracebacks: whoever raises writes a message fit for a stranger, the log has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import ClassVar


class ErrorCode(Enum):
    """Every way a request can fail; the closed set all wires map from."""

    INVALID_REQUEST = "invalid_request"
    UNSUPPORTED_OPERATION = "unsupported_operation"
    UNSUPPORTED_MODEL = "unsupported_model"
    UNAUTHENTICATED = "unauthenticated"
    MODEL_NOT_LOADED = "model_not_loaded"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    BACKEND_ERROR = "backend_error"
    ENGINE_DEAD = "engine_dead"


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """How `openai-compatible/1` words an error: body `type` and `code`, and the RESULT_PUSH status."""

    type: str
    code: str
    status: int


ERROR_ROWS: Mapping[ErrorCode, ErrorRow] = MappingProxyType(
    {
        ErrorCode.INVALID_REQUEST: ErrorRow("invalid_request_error", "invalid_request", 400),
        ErrorCode.UNSUPPORTED_OPERATION: ErrorRow("invalid_request_error", "unsupported_operation", 400),
        ErrorCode.UNSUPPORTED_MODEL: ErrorRow("invalid_request_error", "unsupported_model", 404),
        ErrorCode.UNAUTHENTICATED: ErrorRow("authentication_error", "invalid_token", 401),
        ErrorCode.MODEL_NOT_LOADED: ErrorRow("server_error", "model_not_loaded", 503),
        ErrorCode.OVERLOADED: ErrorRow("server_error", "backend_overload", 429),
        ErrorCode.TIMEOUT: ErrorRow("timeout_error", "request_timeout", 504),
        ErrorCode.CANCELLED: ErrorRow("cancelled", "cancelled", 499),
        ErrorCode.BACKEND_ERROR: ErrorRow("server_error", "backend_error", 500),
        ErrorCode.ENGINE_DEAD: ErrorRow("server_error", "engine_dead", 500),
    }
)


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as a value: what a peer is told. `code` is the fine code where there is one."""

    kind: ErrorCode
    message: str
    code: str
    param: str | None = None
    retry_after_ms: int | None = None

    @property
    def type(self) -> str:
        return ERROR_ROWS[self.kind].type

    @property
    def status(self) -> int:
        return ERROR_ROWS[self.kind].status


class BackendError(Exception):
    """Base of everything a listener may tell its peer; `str()` is the text for the peer."""

    kind: ClassVar[ErrorCode] = ErrorCode.BACKEND_ERROR

    def __init__(
        self, message: str, *, code: str | None = None, param: str | None = None, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code or ERROR_ROWS[self.kind].code
        self.param = param
        self.retry_after_ms = retry_after_ms

    def info(self) -> ErrorInfo:
        return ErrorInfo(self.kind, str(self), self.code, self.param, self.retry_after_ms)


class InvalidRequest(BackendError):
    """The peer's fault. `code` is the finer code: missing_model, invalid_body, context_length_exceeded, …"""

    kind = ErrorCode.INVALID_REQUEST


class UnsupportedOperation(BackendError):
    kind = ErrorCode.UNSUPPORTED_OPERATION


class UnsupportedModel(BackendError):
    kind = ErrorCode.UNSUPPORTED_MODEL


class Unauthenticated(BackendError):
    kind = ErrorCode.UNAUTHENTICATED


class ModelNotLoaded(BackendError):
    kind = ErrorCode.MODEL_NOT_LOADED


class Overloaded(BackendError):
    kind = ErrorCode.OVERLOADED


class RequestTimeout(BackendError):
    kind = ErrorCode.TIMEOUT


class RequestCancelled(BackendError):
    kind = ErrorCode.CANCELLED


class BackendFailure(BackendError):
    """The engine refused or failed this one request; others go on."""

    kind = ErrorCode.BACKEND_ERROR


class EngineDead(BackendError):
    """The engine is gone and with it every request; the process must be replaced."""

    kind = ErrorCode.ENGINE_DEAD
