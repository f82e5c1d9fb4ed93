# SPDX-License-Identifier: MIT
"""The collectors say what the records say, with labels of a closed set."""

from __future__ import annotations

from typing import Any

import pytest
from nnrp.core import ErrorCode as WireErrorCode
from nnrp.core import MessageType
from prometheus_client import CollectorRegistry

from chatdelta import ErrorCode, ErrorInfo, Observation, Observer, Origin, Outcome, Timings, Usage
from nnrp_openai.observability import PrometheusSink
from nnrp_wire import FrameCounts

ORIGIN = Origin("nnrp", "tcp", "c1", 1, 7, 3, "their label")


def observation(outcome: Outcome, *, error: ErrorInfo | None = None, cancel: str | None = None) -> Observation:
    """Two events 0.25 s apart, the first after 0.5 s, of an operation of 2 s."""
    observer = Observer(
        request_id="r", model="m", operation="chat.completions.create", origin=ORIGIN, trace=None, started_s=10.0
    )
    observer.emitted(1, 10.5)
    observer.emitted(1, 10.75)
    observer.timings = Timings(queue_s=0.125)
    observer.cancel_reason = cancel
    return observer.close(outcome, Usage(3, 4, 1, 2), 12.0, error=error)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"vllm_nnrp_{name}", labels)


def test_a_completed_operation(registry: CollectorRegistry) -> None:
    sink = PrometheusSink(registry, in_flight=lambda: 5)
    sink.record(observation(Outcome.COMPLETED))
    operation = {"door": "nnrp", "transport": "tcp", "operation": "chat.completions.create"}
    assert sample(registry, "operations_total", outcome="completed", **operation) == 1
    assert sample(registry, "events_total", door="nnrp") == 2
    tokens = {kind: sample(registry, "tokens_total", door="nnrp", kind=kind) for kind in ("prompt", "completion")}
    assert tokens == {"prompt": 3, "completion": 4}
    assert sample(registry, "operation_seconds_sum", door="nnrp") == 2.0
    assert sample(registry, "first_event_seconds_sum", door="nnrp") == 0.5
    assert sample(registry, "event_gap_seconds_sum", door="nnrp") == 0.25
    assert sample(registry, "queue_seconds_sum", door="nnrp") == 0.125
    assert sample(registry, "in_flight") == 5


@pytest.mark.parametrize("kind", list(ErrorCode))
def test_a_failure_counts_by_its_family_not_by_its_code(registry: CollectorRegistry, kind: ErrorCode) -> None:
    sink = PrometheusSink(registry, in_flight=lambda: 0)
    sink.record(observation(Outcome.FAILED, error=ErrorInfo(kind, "why", "a finer code")))
    assert sample(registry, "errors_total", door="nnrp", family=kind.value) == 1


@pytest.mark.parametrize(("reason", "label"), [("superseded", "superseded"), ("the peer's own words", "other")])
def test_a_cancel_counts_by_a_known_reason(registry: CollectorRegistry, reason: str, label: str) -> None:
    sink = PrometheusSink(registry, in_flight=lambda: 0)
    sink.record(observation(Outcome.CANCELLED, cancel=reason))
    assert sample(registry, "cancels_total", door="nnrp", reason=label) == 1


def test_no_word_of_a_peer_is_a_label(registry: CollectorRegistry) -> None:
    sink = PrometheusSink(registry, in_flight=lambda: 0)
    sink.record(observation(Outcome.CANCELLED, cancel="their reason"))
    values: set[Any] = {value for m in registry.collect() for s in m.samples for value in s.labels.values()}
    assert values.isdisjoint({"their label", "their reason", "m", "c1", "r"})


def test_frames_count_by_kind_and_refused_ones_by_code(registry: CollectorRegistry) -> None:
    counts: FrameCounts | None = None
    PrometheusSink(registry, in_flight=lambda: 0, frames=lambda: counts)
    assert sample(registry, "frames_total", kind="cancel") is None, "there is no door yet"
    counts = FrameCounts()
    for message_type in (MessageType.CANCEL, MessageType.CANCEL, 0x7E):
        counts.receive(message_type)
    counts.refuse(MessageType.DEADLINE, WireErrorCode.FRAME_EXPIRED)
    assert sample(registry, "frames_total", kind="cancel") == 2
    assert sample(registry, "frames_total", kind="unknown") == 1
    assert sample(registry, "frames_refused_total", kind="deadline", code="frame_expired") == 1
