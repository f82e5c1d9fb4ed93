# SPDX-License-Identifier: MIT
"""From an event to its bytes: the contract's JSON fields, and the RESULT_PUSH that carries a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

import msgspec
from msgspec import UNSET, UnsetType
from nnrp.core import PayloadKind, ResultFlags, ResultPushMetadata
from nnrp.core.packet import build_typed_payload_frame, pack_body, pack_typed_payload_frames
from nnrp.schema import StreamSemantics

from chatdelta import (
    BackendFailure,
    Cancelled,
    Completed,
    ErrorInfo,
    Failed,
    LogprobsDelta,
    Observation,
    ReasoningDelta,
    StreamEvent,
    Terminal,
    TextDelta,
    Timings,
    ToolCallCompleted,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallStarted,
    Usage,
    UsageReport,
    logprob_entry,
)
from nnrp_openai.diagnostics import diagnostics_of
from nnrp_openai.profile import CANCELLED_STATUS, SUCCESS_STATUS
from nnrp_wire.limits import MAX_PACKET_BYTES

MAX_TERMINAL_JSON_BYTES = MAX_PACKET_BYTES - 256  # header, metadata, prelude and descriptor fit in the rest
_MAX_U16 = 0xFFFF

_encode = msgspec.json.Encoder().encode
_Chunk: TypeAlias = "Mapping[str, Any] | UnsetType"


class _Event(msgspec.Struct, gc=False, tag_field="type"):
    pass


class _OutputTextDelta(_Event, tag="response.output_text.delta"):
    index: int
    delta: str
    openai_chunk: _Chunk = UNSET


class _ReasoningTextDelta(_Event, tag="response.reasoning_text.delta"):
    index: int
    delta: str
    openai_chunk: _Chunk = UNSET


class _LogprobsDelta(_Event, tag="response.logprobs.delta"):
    index: int
    content: list[dict[str, Any]]
    openai_chunk: _Chunk = UNSET


class _ToolCallStarted(_Event, tag="response.tool_call.started"):
    index: int
    item_id: str
    call_id: str
    name: str
    choice_index: int | UnsetType = UNSET
    openai_chunk: _Chunk = UNSET


class _ToolCallDelta(_Event, tag="response.tool_call.delta"):
    index: int
    item_id: str
    call_id: str
    arguments_delta: str
    choice_index: int | UnsetType = UNSET
    openai_chunk: _Chunk = UNSET


class _ToolCallCompleted(_Event, tag="response.tool_call.completed"):
    index: int
    item_id: str
    call_id: str
    name: str
    arguments: str
    choice_index: int | UnsetType = UNSET
    openai_chunk: _Chunk = UNSET


class _Error(msgspec.Struct, gc=False):
    type: str
    code: str
    message: str
    param: str | UnsetType = UNSET


class _ToolCallError(_Event, tag="response.tool_call.error"):
    index: int
    item_id: str
    call_id: str
    error: _Error
    choice_index: int | UnsetType = UNSET
    openai_chunk: _Chunk = UNSET


class _InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: _InputDetails | UnsetType = UNSET
    output_tokens_details: _OutputDetails | UnsetType = UNSET


class _UsageEvent(_Event, tag="response.usage"):
    usage: _Usage
    openai_chunk: _Chunk = UNSET


class _Diagnostics(_Event, tag="response.diagnostics"):
    diagnostics: Mapping[str, Any]


class _Completed(_Event, tag="response.completed"):
    body: Mapping[str, Any]


class _ErrorEvent(_Event, tag="response.error"):
    error: _Error


class _Cancelled(_Event, tag="response.cancelled"):
    reason: str
    source: str
    operation_id: int
    backend_aborted: bool | None


EVENTS: tuple[type[msgspec.Struct], ...] = tuple(_Event.__subclasses__())


def encode_event(event: StreamEvent, *, many_choices: bool = False, chunk: _Chunk = UNSET) -> bytes:
    """The JSON of one non-terminal event; with `many_choices` a tool call's event names its choice.

    `chunk` goes along as `openai_chunk`.
    """
    if isinstance(event, TextDelta):  # first: this runs once per token
        return _encode(_OutputTextDelta(event.choice_index, event.text, chunk))
    if isinstance(event, ReasoningDelta):
        return _encode(_ReasoningTextDelta(event.choice_index, event.text, chunk))
    if isinstance(event, LogprobsDelta):
        return _encode(_LogprobsDelta(event.choice_index, [logprob_entry(entry) for entry in event.entries], chunk))
    if isinstance(event, UsageReport):
        return _encode(_UsageEvent(_usage(event.usage), chunk))
    choice = event.choice_index if many_choices else UNSET
    match event:
        case ToolCallStarted(index=index, item_id=item, call_id=call, name=name):
            return _encode(_ToolCallStarted(index, item, call, name, choice, chunk))
        case ToolCallDelta(index=index, item_id=item, call_id=call, arguments_delta=arguments):
            return _encode(_ToolCallDelta(index, item, call, arguments, choice, chunk))
        case ToolCallCompleted(index=index, item_id=item, call_id=call, name=name, arguments=arguments):
            return _encode(_ToolCallCompleted(index, item, call, name, arguments, choice, chunk))
        case ToolCallFailed(index=index, item_id=item, call_id=call, error=error):
            return _encode(_ToolCallError(index, item, call, _error(error), choice, chunk))
        case _:
            assert_never(event)


def encode_diagnostics(observation: Observation) -> bytes:
    """The JSON of `response.diagnostics`: what the record of the operation says, without what is unknown."""
    return _encode(_Diagnostics(diagnostics_of(observation)))


def encode_cancelled(reason: str, *, source: str, operation_id: int, backend_aborted: bool | None) -> bytes:
    """The JSON of `response.cancelled`; `backend_aborted` None: the abort was asked for and not waited for."""
    return _encode(_Cancelled(reason, source, operation_id, backend_aborted))


@dataclass(frozen=True, slots=True)
class Times:
    """What a RESULT_PUSH says about time, in seconds."""

    total_s: float = 0.0
    engine: Timings | None = None


def encode_terminal(terminal: Terminal, *, operation_id: int, times: Times) -> tuple[ResultPushMetadata, bytes]:
    """The RESULT_PUSH of a request that ended by itself; a body that fits into no packet becomes an error."""
    status, event = _terminal_event(terminal, operation_id)
    if len(event) > MAX_TERMINAL_JSON_BYTES:
        too_large = BackendFailure("the answer is too large for one packet; ask for a stream", code="answer_too_large")
        status, event = _terminal_event(Failed(too_large.info(), terminal.usage), operation_id)
    frame = build_typed_payload_frame(
        PayloadKind.STRUCTURED_EVENT, event, stream_semantics=StreamSemantics.SNAPSHOT
    )  # profile 0, schema 0 version 0
    descriptors, payloads = pack_typed_payload_frames([frame])
    body = pack_body(typed_payload_descriptor_region=descriptors, typed_payload_frame_region=payloads)
    return _result_metadata(status, times), body


def _terminal_event(terminal: Terminal, operation_id: int) -> tuple[int, bytes]:
    match terminal:
        case Completed(body=body):
            return SUCCESS_STATUS, _encode(_Completed(body))
        case Failed(error=error):
            return error.status, _encode(_ErrorEvent(_error(error)))
        case Cancelled(reason=reason):
            event = encode_cancelled(reason, source="backend", operation_id=operation_id, backend_aborted=True)
            return CANCELLED_STATUS, event
        case _:
            assert_never(terminal)


def _result_metadata(status: int, times: Times) -> ResultPushMetadata:
    engine = times.engine or Timings()
    return ResultPushMetadata(
        status_code=status,
        result_flags=ResultFlags.NONE,
        section_count=0,
        tile_count=0,
        active_profile_id=0,
        reserved0=0,
        inference_ms=_u16_ms(engine.prefill_s + engine.decode_s),
        queue_ms=_u16_ms(engine.queue_s),
        server_total_ms=_u16_ms(times.total_s),
        reserved1=0,
        tile_base_id=0,
        tile_index_bytes=0,
        payload_kind_bitmap=PayloadKind.STRUCTURED_EVENT,
        payload_frame_count=1,
    )


def _u16_ms(seconds: float) -> int:
    return min(max(round(seconds * 1000), 0), _MAX_U16)


def _error(info: ErrorInfo) -> _Error:
    return _Error(info.type, info.code, info.message or info.code, UNSET if info.param is None else info.param)


def _usage(usage: Usage) -> _Usage:
    return _Usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.total_tokens,
        UNSET if usage.cached_tokens is None else _InputDetails(usage.cached_tokens),
        _OutputDetails(usage.reasoning_tokens) if usage.reasoning_tokens else UNSET,
    )
