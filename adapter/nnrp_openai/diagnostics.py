# SPDX-License-Identifier: MIT
"""The extension `vllm.diagnostics`: the observation record of one operation, as its client may see it."""

from __future__ import annotations

from typing import Any

from chatdelta import Observation, Timings, TraceContext


def diagnostics_of(observation: Observation) -> dict[str, Any]:
    """JSON-ready fields, durations in milliseconds; what is unknown is left out. New fields may come: ignore them."""
    origin = observation.origin
    usage = observation.usage
    fields: dict[str, Any] = {
        "request_id": observation.request_id,
        "model": observation.model,
        "operation": observation.operation,
        "transport": origin.transport,
        "connection_id": origin.connection_id,
        "session_id": origin.session_id,
        "operation_id": origin.operation_id,
        "frame_id": origin.frame_id,
        "outcome": observation.outcome.value,
        "output_events": observation.output_events,
        "duration_ms": _ms(observation.duration_s),
        "first_event_ms": _ms(observation.first_event_s),
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cached_tokens": usage.cached_tokens,
        "backend": _backend(observation.timings),
        "error_code": observation.error_code,
        "cancel_reason": observation.cancel_reason,
        "parser_failure": observation.parser_failure,
        "trace": _trace(observation.trace),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _backend(timings: Timings | None) -> dict[str, Any] | None:
    if timings is None:
        return None
    return {
        "queue_ms": _ms(timings.queue_s),
        "prefill_ms": _ms(timings.prefill_s),
        "decode_ms": _ms(timings.decode_s),
    }


def _trace(trace: TraceContext | None) -> dict[str, Any] | None:
    """Ids as hexadecimal text: many JSON readers lose the low bits of a 64-bit number."""
    if trace is None:
        return None
    return {
        "trace_id": f"{trace.trace_id:016x}",
        "span_id": f"{trace.span_id:016x}",
        "parent_span_id": f"{trace.parent_span_id:016x}",
        "stage": trace.stage,
        "flags": trace.flags,
        "attribute_bytes": trace.attribute_bytes,
    }
