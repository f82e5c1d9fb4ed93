# SPDX-License-Identifier: MIT
"""Prometheus collectors, fed from the one observation record of each operation, of either door.

They register in the registry they are given and open no port. Every label has a small, closed set of values: a peer's
words never become one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from chatdelta import Observation
from nnrp_wire import FrameCounts

PREFIX = "vllm_nnrp"
OTHER = "other"
DOORS = frozenset({"grpc", "nnrp"})
CANCEL_REASONS = frozenset(
    {
        "aborted",
        "budget_exceeded",
        "cancelled",
        "deadline",
        "disconnected",
        "session_closed",
        "shutdown",
        "stalled",
        "superseded",
    }
)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_GAP_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


Metric = TypeVar("Metric", Counter, Histogram)


@functools.cache
def _of(metric: Metric, *labels: str) -> Metric:
    """Its child for these labels, which cost more to look up than to count; there are few of them."""
    return metric.labels(*labels)


class _Frames(Collector):
    """NNRP frames by kind, from the carrier's own counts; read from the metrics' thread."""

    def __init__(self, frames: Callable[[], FrameCounts | None]) -> None:
        self._frames = frames

    def collect(self) -> Iterator[CounterMetricFamily]:
        counts = self._frames() or FrameCounts()
        received = CounterMetricFamily(f"{PREFIX}_frames", "NNRP frames received.", labels=("kind",))
        for kind, count in dict(counts.received).items():
            received.add_metric((kind,), count)
        yield received
        text = "NNRP frames refused; a stale update has the code frame_expired."
        refused = CounterMetricFamily(f"{PREFIX}_frames_refused", text, labels=("kind", "code"))
        for labels, count in dict(counts.refused).items():
            refused.add_metric(labels, count)
        yield refused


class PrometheusSink:
    """An ObservationSink. `in_flight` and `frames` are asked whenever the registry is read; None: no NNRP door yet."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        in_flight: Callable[[], int],
        frames: Callable[[], FrameCounts | None] = lambda: None,
    ) -> None:
        labels = ("door", "transport", "operation")

        def histogram(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"{PREFIX}_{name}", text, ("door",), buckets=buckets, registry=registry)

        def counter(name: str, text: str, names: tuple[str, ...]) -> Counter:
            return Counter(f"{PREFIX}_{name}", text, names, registry=registry)

        self._operations = counter("operations", "Operations that ended.", (*labels, "outcome"))
        self._errors = counter("errors", "Operations that failed, by error family.", ("door", "family"))
        self._cancels = counter("cancels", "Operations that ended early, by reason.", ("door", "reason"))
        self._parser_failures = counter("parser_failures", "Answers a native parser raised on.", ("door",))
        self._tokens = counter("tokens", "Tokens of ended operations.", ("door", "kind"))
        self._events = counter("events", "Events sent for ended operations.", ("door",))
        self._duration = histogram("operation_seconds", "Whole time of an operation.")
        self._first_event = histogram("first_event_seconds", "From the arrival to the first event.")
        self._gap = histogram("event_gap_seconds", "Mean time between an operation's events.", _GAP_SECONDS)
        self._queue = histogram("queue_seconds", "Time in the engine's queue.")
        gauge = Gauge(f"{PREFIX}_in_flight", "Operations that use the engine now.", registry=registry)
        gauge.set_function(in_flight)
        registry.register(_Frames(frames))

    def record(self, observation: Observation) -> None:
        origin, usage = observation.origin, observation.usage
        door = origin.door if origin.door in DOORS else OTHER
        _of(self._operations, door, origin.transport, observation.operation, observation.outcome.value).inc()
        if observation.error_kind is not None:
            _of(self._errors, door, observation.error_kind.value).inc()
        if observation.cancel_reason is not None:
            reason = observation.cancel_reason
            _of(self._cancels, door, reason if reason in CANCEL_REASONS else OTHER).inc()
        if observation.parser_failure is not None:
            _of(self._parser_failures, door).inc()
        _of(self._events, door).inc(observation.output_events)
        for kind, count in (
            ("prompt", usage.prompt_tokens),
            ("completion", usage.completion_tokens),
            ("reasoning", usage.reasoning_tokens),
            ("cached", usage.cached_tokens or 0),
        ):
            _of(self._tokens, door, kind).inc(count)
        _of(self._duration, door).observe(observation.duration_s)
        for collector, seconds in (
            (self._first_event, observation.first_event_s),
            (self._gap, observation.event_gap_s),
            (self._queue, observation.timings.queue_s if observation.timings else None),
        ):
            if seconds is not None:
                _of(collector, door).observe(seconds)
