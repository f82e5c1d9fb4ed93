# SPDX-License-Identifier: MIT
"""The plots of a run, with matplotlib (the extra `bench`)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from vllm_nnrp.bench.results import Results

INCHES, DPI = (8.0, 4.5), 110
DOORS = ("nnrp-tcp", "nnrp-ipc", "nnrp-tcp-alone", "grpc", "http", "direct")
COLOURS = dict(zip(DOORS, ("#1f77b4", "#17becf", "#2ca02c", "#ff7f0e", "#d62728", "#7f7f7f"), strict=True))


def draw_plots(results: Results, folder: Path) -> dict[str, list[str]]:
    """PNG files in `folder`, by the scenario they are of; none for what the run does not have."""
    matplotlib.use("Agg")
    made: dict[str, list[str]] = {}
    for scenario, name, draw in PLOTS:
        if results.of(scenario):
            figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
            draw(figure.subplots(), results)
            figure.savefig(folder / f"{name}.png", metadata={"Software": None})
            made.setdefault(scenario, []).append(f"{name}.png")
    return made


def _bars(axes: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]], ylabel: str) -> None:
    """Beside each other within a group; NaN, where a series has nothing for a group, has no bar."""
    width = 0.8 / max(1, len(series))
    for place, (name, values) in enumerate(series.items()):
        at = [index - 0.4 + width * (place + 0.5) for index in range(len(groups))]
        bars = axes.bar(at, values, width, label=name, color=COLOURS.get(name))
        axes.bar_label(bars, [_shown(value) for value in values], fontsize=7)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(ylabel)
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _shown(value: float) -> str:
    """Three digits, or all before the point."""
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _by_case(results: Results, scenario: str, names: Mapping[str, str], axes: Any, ylabel: str) -> None:
    cases = results.cases(scenario)
    series = {shown: [_median(results, scenario, case, name) for case in cases] for name, shown in names.items()}
    _bars(axes, cases, series, ylabel)


def _median(results: Results, scenario: str, case: str, name: str) -> float:
    values = results.values(scenario, case, name)
    return statistics.median(values) if values else math.nan


def _mapper(axes: Any, results: Results) -> None:
    names = {"nnrp_us": "delta to event", "grpc_us": "delta to reply", "bare_json_us": "the same JSON alone"}
    _by_case(results, "mapper", names, axes, "µs of CPU an event")


def _parse(axes: Any, results: Results) -> None:
    _by_case(results, "parse", {"ours_us": "vllm-nnrp", "vllm_us": "vLLM"}, axes, "µs of CPU")
    axes.set_yscale("log")


def _of_doors(results: Results, scenario: str, name: str, axes: Any, ylabel: str, *, log: bool = False) -> None:
    """Cases called `DOOR xCOUNT`: a group for each count."""
    cases = [case.rsplit(" x", 1) for case in results.cases(scenario)]
    counts = sorted({int(count) for _, count in cases})
    doors = [door for door in DOORS if any(door == name for name, _ in cases)]
    series = {door: [_median(results, scenario, f"{door} x{count}", name) for count in counts] for door in doors}
    _bars(axes, [f"{count} stream{'s' * (count > 1)}" for count in counts], series, ylabel)
    if log:
        axes.set_yscale("log")


def _latency(axes: Any, results: Results) -> None:
    _of_doors(results, "stream", "p95_ms", axes, "p95 latency, ms", log=True)


def _stream_cpu(axes: Any, results: Results) -> None:
    _of_doors(results, "stream", "server_cpu_us_per_token", axes, "µs of server CPU a token")


def _distribution(axes: Any, results: Results) -> None:
    """Of the largest number of streams up to 64."""
    counts = {int(case.rsplit(" x", 1)[1]) for case in results.cases("stream")}
    count = max(count for count in counts if count <= 64)
    for door in DOORS:
        records = [record for record in results.of("stream") if record.case == f"{door} x{count}"]
        samples = sorted(value for record in records for value in record.samples["latency_ms"])
        if samples:
            axes.plot(
                samples,
                [100 * rank / len(samples) for rank in range(1, len(samples) + 1)],
                label=door,
                color=COLOURS[door],
            )
    axes.set_xscale("log")
    axes.set_xlabel(f"latency of a token, ms ({count} streams)")
    axes.set_ylabel("% of tokens at most so late")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


def _cancel(axes: Any, results: Results) -> None:
    names = {"abort_p50_ms": "abort p50", "abort_p95_ms": "abort p95", "end_p95_ms": "last event p95"}
    _by_case(results, "cancel", names, axes, "ms after the cancel")


def _lines(axes: Any, lines: Mapping[str, Sequence[tuple[float, float]]], xlabel: str, ylabel: str) -> None:
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name, color=COLOURS.get(name))
    axes.set_xscale("log", base=2)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


def _points(results: Results, scenario: str, split: str, x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    """By the part of a case's name before `split`."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for case in results.cases(scenario):
        point = (_median(results, scenario, case, x), _median(results, scenario, case, y))
        lines.setdefault(case.split(split)[0], []).append(point)
    return lines


def _length(axes: Any, results: Results) -> None:
    lines = _points(results, "length", ", ", "tokens", "us_per_token")
    _lines(axes, lines, "tokens of the answer", "µs of CPU a token")
    axes.set_ylim(bottom=0)


def _payload(axes: Any, results: Results) -> None:
    _lines(
        axes,
        _points(results, "payload", " ", "bytes", "p50_ms"),
        "bytes of the request",
        "ms to the answer's end (p50)",
    )
    axes.set_yscale("log")


def _end_to_end(scenario: str) -> Callable[[Any, Results], None]:
    return lambda axes, results: _of_doors(results, scenario, "tokens_per_s", axes, "tokens a second, all streams")


PLOTS: tuple[tuple[str, str, Callable[[Any, Results], None]], ...] = (
    ("mapper", "mapper", _mapper),
    ("parse", "parse", _parse),
    ("stream", "stream-latency", _latency),
    ("stream", "stream-distribution", _distribution),
    ("stream", "stream-cpu", _stream_cpu),
    ("cancel", "cancel", _cancel),
    ("length", "length", _length),
    ("payload", "payload", _payload),
    *((name, name, _end_to_end(name)) for name in ("end-to-end", "end-to-end-tiny")),
)
