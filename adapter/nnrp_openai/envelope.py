# SPDX-License-Identifier: MIT
"""From a FRAME_SUBMIT to a `Submit`: the typed payload, the JSON, the envelope's rules, the token.

The cheap checks come first, and nothing of the body is looked at before the token is right.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from nnrp.core import (
    BODY_REGION_PRELUDE_LENGTH,
    TYPED_PAYLOAD_DESCRIPTOR_LENGTH,
    BodyRegionPrelude,
    FrameSubmitMetadata,
    PayloadKind,
    SubmitMode,
)
from nnrp.core.packet import unpack_body, unpack_typed_payload_frames
from nnrp.schema import StreamSemantics
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chatdelta import RESERVED_TEMPLATE_KWARGS, InvalidRequest, Unauthenticated, UnsupportedOperation
from chatserving.runner import requested_choices
from nnrp_openai.jsondepth import has_more_containers, is_nested_deeper
from nnrp_openai.profile import CAPABILITIES_GET, OPERATIONS, SCHEMA_VERSION, ProfileLimits

INVALID_ENVELOPE = "invalid_envelope"
INVALID_POLICY = "invalid_nnrp_policy"
INVALID_BODY = "invalid_body"
MAX_TIMEOUT_MS = 2**31 - 1
MAX_LABEL_CHARS = 256
_SHOWN_CHARS = 64  # of a peer's own words in an error text

_Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL_CHARS)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class NnrpPolicy(_Strict):
    """The envelope's `nnrp` object. An explicit null counts as absent."""

    timeout_ms: Annotated[int, Field(ge=0, le=MAX_TIMEOUT_MS)] | None = None
    diagnostics: bool | None = None
    progress: bool | None = None
    openai_chunk: bool | None = None
    cache_salt: _Label | None = None
    token: Annotated[str, Field(max_length=4096)] | None = None


class Envelope(_Strict):
    """The shape of a request; `body` gets its own checks once the token is right."""

    schema_version: str
    operation: str
    request_id: Annotated[str, Field(max_length=MAX_LABEL_CHARS)] | None = None
    nnrp: NnrpPolicy | None = None
    body: Any = None


@dataclass(frozen=True, slots=True)
class Submit:
    """A valid request. It carries no token; `body` is the peer's OpenAI body, untouched."""

    operation: str
    body: Mapping[str, Any]
    model: str
    choices: int = 1
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    request_id: str = ""  # the peer's label
    timeout_s: float | None = None
    diagnostics: bool = False
    progress: bool = False
    openai_chunk: bool = False
    cache_salt: str | None = None


def decode_submit(metadata: FrameSubmitMetadata, body: bytes, limits: ProfileLimits, token: str | None) -> Submit:
    """The request of one submit; `token` is the one required, None for none.

    Raises InvalidRequest, Unauthenticated or UnsupportedOperation.
    """
    if len(body) > limits.max_request_bytes:
        raise InvalidRequest(f"a request has at most {limits.max_request_bytes} bytes", code=INVALID_BODY)
    envelope = decode_envelope(structured_event(metadata, body), limits)
    policy = envelope.nnrp or NnrpPolicy()
    check_token(policy.token, token)
    if envelope.schema_version != SCHEMA_VERSION:
        raise InvalidRequest(
            f"schema_version must be {SCHEMA_VERSION}", code="unsupported_schema_version", param="schema_version"
        )
    if envelope.operation == CAPABILITIES_GET:
        if envelope.body != {}:
            raise InvalidRequest("the body of capabilities.get is {}", code=INVALID_BODY, param="body")
        return Submit(CAPABILITIES_GET, {}, "", request_id=envelope.request_id or "")
    if envelope.operation not in OPERATIONS:
        raise UnsupportedOperation(f"operation {shown(envelope.operation)} is not supported", param="operation")
    request = checked_body(envelope.body)
    return Submit(
        operation=envelope.operation,
        body=request,
        model=request["model"],
        choices=bounded_choices(request, limits),
        stream=flag(request, "stream"),
        include_usage=stream_option(request, "include_usage"),
        continuous_usage=stream_option(request, "include_usage") and stream_option(request, "continuous_usage_stats"),
        request_id=envelope.request_id or "",
        timeout_s=policy.timeout_ms / 1000 if policy.timeout_ms else None,  # 0 is none
        diagnostics=bool(policy.diagnostics),
        progress=bool(policy.progress),
        openai_chunk=bool(policy.openai_chunk),
        cache_salt=policy.cache_salt,
    )


def structured_event(metadata: FrameSubmitMetadata, body: bytes) -> bytes:
    """The JSON bytes of the one structured event a submit carries. Raises InvalidRequest."""
    if (
        metadata.payload_kind_bitmap != PayloadKind.STRUCTURED_EVENT
        or metadata.payload_frame_count != 1
        or metadata.submit_mode is not SubmitMode.INLINE
        or metadata.object_ref_mask
    ):
        raise InvalidRequest("a submit carries exactly one inline structured_event payload", code=INVALID_ENVELOPE)
    try:
        _require_one_payload(body)
        view = unpack_body(body)
        (frame,) = unpack_typed_payload_frames(
            view.typed_payload_descriptor_region,
            view.typed_payload_frame_region,
            payload_kind_bitmap=metadata.payload_kind_bitmap,
        )
    except (ValueError, struct.error) as exc:
        raise InvalidRequest("the typed payload is malformed", code=INVALID_ENVELOPE) from exc
    descriptor = (frame.profile_id, int(frame.descriptor_flags), frame.schema_id, frame.schema_version)
    if descriptor != (0, 0, 0, 0) or int(frame.stream_semantics) != StreamSemantics.SNAPSHOT:
        raise InvalidRequest(
            "the payload's descriptor must be profile 0, schema 0 version 0, no flags, snapshot", code=INVALID_ENVELOPE
        )
    return frame.payload


def _require_one_payload(body: bytes) -> None:
    """Refuse other regions from the prelude alone, before anything walks over them. Raises ValueError."""
    prelude: BodyRegionPrelude = BodyRegionPrelude.unpack(body[:BODY_REGION_PRELUDE_LENGTH])
    others = (
        prelude.inline_object_bytes,
        prelude.object_reference_bytes,
        prelude.extension_descriptor_bytes,
        prelude.extension_payload_bytes,
    )
    if any(others) or prelude.typed_payload_descriptor_bytes != TYPED_PAYLOAD_DESCRIPTOR_LENGTH:
        raise ValueError("exactly one descriptor and no other region is allowed")


def decode_envelope(text: bytes, limits: ProfileLimits) -> Envelope:
    """Raises InvalidRequest: invalid_body (too deep, too many parts), invalid_envelope or invalid_nnrp_policy."""
    if has_more_containers(text, limits.max_json_containers):
        raise InvalidRequest(f"JSON has at most {limits.max_json_containers} arrays and objects", code=INVALID_BODY)
    if is_nested_deeper(text, limits.max_json_depth):
        raise InvalidRequest(f"JSON is nested at most {limits.max_json_depth} deep", code=INVALID_BODY)
    try:
        envelope = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise InvalidRequest("the envelope is not valid JSON", code=INVALID_ENVELOPE) from exc
    if not isinstance(envelope, dict):
        raise InvalidRequest("the envelope must be a JSON object", code=INVALID_ENVELOPE)
    try:
        return Envelope.model_validate(envelope)
    except ValidationError as exc:
        raise _refused(exc) from None  # without the cause: it holds the input, and that may hold a token


def _refused(error: ValidationError) -> InvalidRequest:
    """The first finding, by the field's name and without its value."""
    finding = error.errors(include_url=False, include_context=False, include_input=False)[0]
    location = finding["loc"]
    code = INVALID_POLICY if location[0] == "nnrp" else INVALID_ENVELOPE
    field = shown(".".join(str(part) for part in location))
    if finding["type"] == "extra_forbidden":
        return InvalidRequest(f"unknown field {field}", code=code, param=field)
    if finding["type"] == "missing":
        return InvalidRequest(f"{field} is missing", code=code, param=field)
    return InvalidRequest(f"{field}: {finding['msg']}", code=code, param=field)


def check_token(given: str | None, required: str | None) -> None:
    """Raises Unauthenticated. The time taken says nothing about the required token but its length."""
    if required is None:
        return
    if not hmac.compare_digest((given or "").encode(), required.encode()):
        raise Unauthenticated("nnrp.token is missing or wrong")


def checked_body(body: object) -> dict[str, Any]:
    """The OpenAI body with what every operation needs; the engine's own request model validates the rest."""
    if not isinstance(body, dict):
        raise InvalidRequest("body must be an object", code=INVALID_BODY, param="body")
    if not isinstance(model := body.get("model"), str) or not model:
        raise InvalidRequest("body.model must name a model", code="missing_model", param="model")
    if not (messages := body.get("messages")):
        raise InvalidRequest("body.messages must not be empty", code="missing_messages", param="messages")
    if not isinstance(messages, list):
        raise InvalidRequest("body.messages must be an array", code=INVALID_BODY, param="messages")
    _check_template_kwargs(body.get("chat_template_kwargs"))
    return body


def _check_template_kwargs(kwargs: object) -> None:
    """What the template is called with is ours to say; its own variables are the client's."""
    field = "chat_template_kwargs"
    if kwargs is None:
        return
    if not isinstance(kwargs, dict):
        raise InvalidRequest(f"{field} must be an object", code=INVALID_BODY, param=field)
    if reserved := sorted(RESERVED_TEMPLATE_KWARGS & kwargs.keys()):
        raise InvalidRequest(f"{field}.{reserved[0]} is reserved", code=INVALID_BODY, param=f"{field}.{reserved[0]}")


def bounded_choices(body: Mapping[str, Any], limits: ProfileLimits) -> int:
    choices = requested_choices(body)
    if choices > limits.max_choices:
        raise InvalidRequest(f"n must be at most {limits.max_choices}", code=INVALID_BODY, param="n")
    return choices


def stream_option(body: Mapping[str, Any], name: str) -> bool:
    """A boolean of `stream_options`. Raises InvalidRequest."""
    options = body.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise InvalidRequest("stream_options must be an object", code=INVALID_BODY, param="stream_options")
    return flag(options, name)


def flag(body: Mapping[str, Any], name: str) -> bool:
    """A JSON boolean; absent and null are false. Raises InvalidRequest for anything else."""
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be a boolean", code=INVALID_BODY, param=name)
    return value


def shown(text: str) -> str:
    """A peer's words, fit for an error text: short and printable."""
    cut = text[:_SHOWN_CHARS]
    return "".join(char if char.isprintable() else "?" for char in cut) + ("…" if len(text) > _SHOWN_CHARS else "")
