# SPDX-License-Identifier: MIT
"""vLLM's exceptions become ours, once. Codes come from types and vLLM's `.parameter`, never from words in a message."""

from __future__ import annotations

import json
import logging
import re
import traceback

from pydantic import ValidationError

from chatdelta import BackendError, BackendFailure, EngineDead, InvalidRequest, UnsupportedOperation

log = logging.getLogger(__name__)

CONTEXT_PARAMETERS = frozenset({"input_tokens", "input_text"})
MAX_MESSAGE_CHARS = 500
_PATH = re.compile(r"(?<![\w<:/])(?:/[\w.@+-]+){2,}/?")
_OBJECT = re.compile(r"\s*<[\w.]+ [^<>]*\bat 0x[0-9a-fA-F]+>")  # the repr of some object
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
PLAIN_TYPES = frozenset({"str", "int", "float", "bool", "dict", "list"})  # in the places of pydantic's unions
OBJECT_ERRORS = frozenset({"model_type", "model_attributes_type", "dataclass_type", "dict_type"})


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
        if isinstance(cause, ValueError | OverflowError):
            return _invalid(cause)
        log.error("vLLM failed a request", exc_info=exc, extra={"request_id": request_id})
        return BackendFailure("the engine failed this request; the log has the details")
    if isinstance(exc, NotImplementedError):
        return UnsupportedOperation(for_peer(str(exc)) or "vLLM does not implement this")
    if isinstance(exc, ValueError | TypeError | OverflowError):
        return _invalid(exc)
    log.error("request failed in vLLM", exc_info=exc, extra={"request_id": request_id})
    return BackendFailure("the engine failed this request; the log has the details")


def _invalid(exc: Exception) -> InvalidRequest:
    if isinstance(exc, ValidationError):
        return refused(exc)
    if isinstance(exc, json.JSONDecodeError):
        return InvalidRequest("text inside the request that must be JSON is not", code="invalid_body")
    if not isinstance(exc, ValueError):  # Python's words for it are of no use to a peer
        log.info("a request is refused for %s: %s", type(exc).__name__, trail(exc))
        return InvalidRequest("a value in the request has a wrong type or size", code="invalid_body")
    parameter = getattr(exc, "parameter", None)  # vllm.exceptions.VLLMValidationError
    message = str(exc.args[0]) if exc.args else str(exc)
    code = "context_length_exceeded" if parameter in CONTEXT_PARAMETERS else None
    return InvalidRequest(naming(parameter if code is None else None, message), code=code, param=parameter)


def refused(exc: ValidationError, *, start: str | None = None) -> InvalidRequest:
    """Our error for what vLLM's request model does not take; `start` is where its places begin, if below the top."""
    first = exc.errors(include_url=False, include_input=False)[0]
    cause = first.get("ctx", {}).get("error")  # what a validator of vLLM's raised
    if isinstance(cause, ValueError) and (parameter := getattr(cause, "parameter", None)):
        return InvalidRequest(naming(parameter, str(cause.args[0])), code="invalid_body", param=parameter)
    param, finding = most_telling(exc)
    param = ".".join(part for part in (start, param) if part) or None
    return InvalidRequest(naming(param, finding), code="invalid_body", param=param)


def naming(param: str | None, finding: str) -> str:
    """A text that names the field, fit for a peer."""
    named = param is None or re.search(rf"(?<!\w){re.escape(param)}(?!\w)", finding)
    return for_peer(finding if named else f"{param}: {finding}")


def failure_of_parser(exc: BaseException) -> str:
    """What the log says where a native parser raised."""
    return f"a native parser raised {type(exc).__name__}, the answer goes on as plain text ({trail(exc)})"


def trail(exc: BaseException) -> str:
    """Where an exception came from, for the log. Not what it says: that may be the text of a prompt or an answer."""
    frames = traceback.extract_tb(exc.__traceback__)
    return " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)


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
    finding = "must be an object" if first["type"] in OBJECT_ERRORS else first["msg"].removeprefix("Value error, ")
    return _field(first["loc"]), finding


def _field(location: tuple[int | str, ...]) -> str | None:
    """The place in the peer's JSON: without the names of classes and types that pydantic puts between."""
    names = (str(part) for part in location)
    return ".".join(name for name in names if not _is_type(name)) or None


def _is_type(name: str) -> bool:
    return name[:1].isupper() or "[" in name or name in PLAIN_TYPES
