# SPDX-License-Identifier: MIT
"""What was aimed at, judged from the records of a run. A figure that a run does not have is not judged. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from vllm_nnrp.bench.figures import Target, median_difference, median_ratio
from vllm_nnrp.bench.results import Results

HTTP = "http x64"
CPU = "server_cpu_us_per_token"


def targets(results: Results) -> list[Target]:
    """Ratios and differences are medians over interleaved rounds, each pair from one round."""
    return [
        target
        for judge in (_mapping, _parsing, _streaming, _length, _cancel, _doors, _idle)
        for target in judge(results)
    ]


def _mapping(results: Results) -> Iterator[Target]:
    if spent := results.values("mapper", "text", "nnrp_us"):
        yield Target("mapper: a text delta mapped and encoded", statistics.median(spent), 3.0, "µs")


def _parsing(results: Results) -> Iterator[Target]:
    for case in results.cases("parse"):
        ours, theirs = results.paired("parse", (case, "ours_us"), (case, "vllm_us"))
        limit, beside = (1.2, "vLLM's parse_delta") if case.startswith("token") else (1.0, "vLLM's serving object")
        yield Target(f"parse: {case}: CPU beside {beside}", median_ratio(ours, theirs), limit, "x")


def _streaming(results: Results) -> Iterator[Target]:
    for case, limit in (("nnrp-tcp x64", 0.6), ("nnrp-tcp-alone x64", 0.6), ("grpc x64", 1.2)):
        yield from _pair(results, case, CPU, median_ratio, limit, "x", "server CPU a token beside HTTP/SSE")
    for case, limit in (("nnrp-tcp x64", 0.0), ("nnrp-tcp-alone x64", 0.0), ("grpc x64", 2.0)):
        yield from _pair(results, case, "p95_ms", median_difference, limit, "ms", "p95 latency beyond HTTP/SSE's")


Combine = Callable[[list[float], list[float]], float]


def _pair(
    results: Results, case: str, name: str, combine: Combine, limit: float, unit: str, what: str
) -> Iterator[Target]:
    ours, theirs = results.paired("stream", (case, name), (HTTP, name))
    if ours:
        yield Target(f"stream: {case}: {what}", combine(ours, theirs), limit, unit)


def _length(results: Results) -> Iterator[Target]:
    name = "us_per_token"
    longest, shortest = results.paired("length", ("plain, 16384", name), ("plain, 256", name))
    if longest:
        ratio = median_ratio(longest, shortest)
        yield Target("length: cost a token at 16,384 tokens beside 256, no parsers", ratio, 1.2, "x")


def _cancel(results: Results) -> Iterator[Target]:
    for case, name, limit, what in (
        ("nnrp-tcp", "end_p95_ms", 3.0, "p95 to the last event"),
        ("grpc", "abort_p95_ms", 15.0, "p95 to the engine's abort"),
    ):
        if taken := results.values("cancel", case, name):
            yield Target(f"cancel: {case}: {what}", statistics.median(taken), limit, "ms")
            late = sum(results.values("cancel", case, "late_events"))
            yield Target(f"cancel: {case}: late events", late, 0.0, "")


def _doors(results: Results) -> Iterator[Target]:
    name = "tokens_per_s"
    for scenario in ("end-to-end", "end-to-end-tiny"):
        for door in ("nnrp-tcp", "grpc"):
            ours, direct = results.paired(scenario, (f"{door} x16", name), ("direct x16", name))
            if ours:
                ratio = median_ratio(ours, direct)
                yield Target(f"{scenario}: {door} x16: tokens/s beside no door", ratio, 0.97, "x", at_least=True)


def _idle(results: Results) -> Iterator[Target]:
    case = "idle: 1000 nnrp sessions of one connection"
    if spent := results.values("sessions", case, "server_core_percent"):
        yield Target("sessions: 1,000 idle NNRP sessions", statistics.median(spent), 1.0, "% of a core")
