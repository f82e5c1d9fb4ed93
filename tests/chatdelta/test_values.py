# SPDX-License-Identifier: MIT
"""Errors, trace and observation: the small closed sets and records of the core."""

from __future__ import annotations

import pytest

from chatdelta import (
    ERROR_ROWS,
    BackendError,
    ErrorCode,
    InvalidRequest,
    Observer,
    Origin,
    Outcome,
    Overloaded,
    Timings,
    TraceContext,
    Usage,
)

# type, code, status of each code: architecture.md §6.
PROFILE = {
    "invalid_request": ("invalid_request_error", "invalid_request", 400),
    "unsupported_operation": ("invalid_request_error", "unsupported_operation", 400),
    "unsupported_model": ("invalid_request_error", "unsupported_model", 404),
    "unauthenticated": ("authentication_error", "invalid_token", 401),
    "model_not_loaded": ("server_error", "model_not_loaded", 503),
    "overloaded": ("server_error", "backend_overload", 429),
    "timeout": ("timeout_error", "request_timeout", 504),
    "cancelled": ("cancelled", "cancelled", 499),
    "backend_error": ("server_error", "backend_error", 500),
    "engine_dead": ("server_error", "engine_dead", 500),
}


def test_every_error_code_has_its_row() -> None:
    assert {code.value: (row.type, row.code, row.status) for code, row in ERROR_ROWS.items()} == PROFILE
    assert set(ERROR_ROWS) == set(ErrorCode)


def test_every_error_code_has_one_exception() -> None:
    assert {cls.kind for cls in BackendError.__subclasses__()} == set(ErrorCode)


def test_a_fine_code_replaces_the_rows_code_and_keeps_its_type() -> None:
    info = InvalidRequest("no messages", code="missing_messages", param="messages").info()
    assert (info.type, info.code, info.status, info.param) == (
        "invalid_request_error",
        "missing_messages",
        400,
        "messages",
    )
    assert Overloaded("full", retry_after_ms=50).info().retry_after_ms == 50


TRACEPARENTS = {
    "both ids, sampled": (
        TraceContext(0x1A2B, 0x3C, flags=1),
        "00-00000000000000000000000000001a2b-000000000000003c-01",
    ),
    "not sampled": (TraceContext(1, 2), "00-00000000000000000000000000000001-0000000000000002-00"),
    "the error flag is not carried over": (
        TraceContext(1, 2, flags=2),
        "00-00000000000000000000000000000001-0000000000000002-00",
    ),
    "parent, stage and attributes are not carried over": (
        TraceContext(2**64 - 1, 2**64 - 1, parent_span_id=9, stage=5, flags=3, attribute_bytes=40),
        "00-0000000000000000ffffffffffffffff-ffffffffffffffff-01",
    ),
    "no trace id": (TraceContext(0, 2, flags=1), None),
    "no span id": (TraceContext(1, 0, flags=1), None),
}


@pytest.mark.parametrize("rule", TRACEPARENTS)
def test_traceparent(rule: str) -> None:
    trace, expected = TRACEPARENTS[rule]
    assert trace.traceparent() == expected


def test_an_observation_is_closed_exactly_once() -> None:
    observer = Observer(
        request_id="r",
        model="m",
        operation="chat.completions.create",
        origin=Origin("nnrp"),
        trace=None,
        started_s=10.0,
    )
    observer.emitted(0, 10.5)
    observer.emitted(2, 11.0)
    observer.emitted(1, 12.0)
    observer.timings = Timings(queue_s=0.1)
    record = observer.close(Outcome.COMPLETED, Usage(3, 4), 13.0)
    assert (record.first_event_s, record.output_events, record.duration_s) == (1.0, 3, 3.0)
    assert (record.usage.total_tokens, record.timings) == (7, Timings(queue_s=0.1))
    with pytest.raises(RuntimeError):
        observer.close(Outcome.FAILED, Usage(), 14.0)
