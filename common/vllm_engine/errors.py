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
_OBJECT = re.compile(r"\s*<[\w.]+ [^<>]*\bat 0x[0-9a-fA-F]+>")  # the repr of some object
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


def for_peer(message: str) -> str:
    """`message` without paths, addresses and Python objects, on one line, at a bounded length."""
    text = _ADDRESS.sub("<address>", _PATH.sub("<path>", _OBJECT.sub("", " ".join(message.split())))).strip()
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
        first = exc.errors(include_url=False, include_input=False)[0]
        cause = first.get("ctx", {}).get("error")  # what a validator of vLLM's raised
        if isinstance(cause, ValueError) and (parameter := getattr(cause, "parameter", None)):
            return InvalidRequest(for_peer(str(cause.args[0])), code="invalid_body", param=parameter)
        param, finding = most_telling(exc)
        where = f"{param}: " if param else ""
        return InvalidRequest(for_peer(f"{where}{finding}"), code="invalid_body", param=param)
    parameter = getattr(exc, "parameter", None)  # vllm.exceptions.VLLMValidationError
    message = str(exc.args[0]) if exc.args else str(exc)
    code = "context_length_exceeded" if parameter in CONTEXT_PARAMETERS else None
    return InvalidRequest(for_peer(message), code=code, param=parameter)


def most_telling(exc: ValidationError) -> tuple[str | None, str]:
    """(field, finding) of the error that says most; never the value, which may be megabytes of base64.

    A union of messages or content parts complains once for each member; those of another `type` were not meant.
    """
    findings = exc.errors(include_url=False, include_context=False, include_input=False)
    others = [found["loc"] for found in findings if found["type"] == "literal_error" and len(found["loc"]) > 1]
    meant = [found for found in findings if not any(found["loc"][: len(loc) - 1] == loc[:-1] for loc in others)]
    if not meant and len(findings) > 1:
        return _field(others[0]), "not one of the known values"
    first = (meant or findings)[0]
    return _field(first["loc"]), first["msg"]


def _field(location: tuple[int | str, ...]) -> str | None:
    """The place in the peer's JSON: without the names of classes and types that pydantic puts between."""
    names = (str(part) for part in location)
    return ".".join(name for name in names if not name[:1].isupper() and "[" not in name) or None
