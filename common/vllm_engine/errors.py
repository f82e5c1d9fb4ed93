# SPDX-License-Identifier: MIT
"""vLLM's exceptions become ours, once. Codes come from types and vLLM's `.parameter`, never from words in a message."""

from __future__ import annotations

import logging
import re

from pydantic import ValidationError

from chatdelta import BackendError, BackendFailure, EngineDead, InvalidRequest, UnsupportedOperation

log = logging.getLogger(__name__)

CONTEXT_PARAMETERS = frozenset({"input_tokens", "input_text"})
MAX_MESSAGE_CHARS = 500
_PATH = re.compile(r"(?<![\w<:/])(?:/[\w.@+-]+){2,}/?")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


def for_peer(message: str) -> str:
    """`message` without paths and addresses, on one line, at a bounded length."""
    text = _ADDRESS.sub("<address>", _PATH.sub("<path>", " ".join(message.split())))
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def translate(exc: Exception, request_id: str) -> BackendError:
    """Our error for an exception of rendering or generating."""
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    if isinstance(exc, BackendError):
        return exc
    if isinstance(exc, EngineDeadError):
        return EngineDead("the engine has died")
    if isinstance(exc, EngineGenerateError):
        cause = exc.__cause__
        if isinstance(cause, ValueError):
            return _invalid(cause)
        log.error("vLLM failed a request", exc_info=exc, extra={"request_id": request_id})
        return BackendFailure("the engine failed this request; the log has the details")
    if isinstance(exc, NotImplementedError):
        return UnsupportedOperation(for_peer(str(exc)) or "vLLM does not implement this")
    if isinstance(exc, ValueError | TypeError):
        return _invalid(exc)
    log.error("request failed in vLLM", exc_info=exc, extra={"request_id": request_id})
    return BackendFailure("the engine failed this request; the log has the details")


def _invalid(exc: Exception) -> InvalidRequest:
    if isinstance(exc, ValidationError):
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        param = ".".join(str(part) for part in first["loc"]) or None
        where = f"{param}: " if param else ""
        return InvalidRequest(for_peer(f"{where}{first['msg']}"), code="invalid_body", param=param)
    parameter = getattr(exc, "parameter", None)  # vllm.exceptions.VLLMValidationError
    message = str(exc.args[0]) if exc.args else str(exc)
    code = "context_length_exceeded" if parameter in CONTEXT_PARAMETERS else None
    return InvalidRequest(for_peer(message), code=code, param=parameter)
