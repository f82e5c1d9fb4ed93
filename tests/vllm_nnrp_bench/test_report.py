# SPDX-License-Identifier: MIT
"""From records to targets, tables and files: a small run written down by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_nnrp.bench.figures import Target
from vllm_nnrp.bench.report import ABOUT, NOT_SHOWN, report
from vllm_nnrp.bench.results import Record, Results
from vllm_nnrp.bench.running import NAMES
from vllm_nnrp.bench.targets import targets

MACHINE: dict[str, Any] = {
    "cpu": "A CPU",
    "cores": 2,
    "memory_gib": 24.0,
    "kernel": "6.1",
    "python": "3.11.7",
    "versions": {"vllm": "0.26.0"},
    "load_at_start": 0.1,
    "load_at_end": 1.25,
}


def results(*rows: tuple[str, str, dict[str, float]]) -> Results:
    """Rows of one case are its rounds, in order."""
    made = Results(MACHINE, {"quick": False, "seconds": 5})
    for scenario, case, values in rows:
        number = len([record for record in made.of(scenario) if record.case == case])
        made.records.append(Record(scenario, case, number, values))
    return made


CPU, P95 = "server_cpu_us_per_token", "p95_ms"
ROWS = (
    ("mapper", "text", {"nnrp_us": 2.0, "grpc_us": 9.0, "bare_json_us": 0.5}),
    ("mapper", "text", {"nnrp_us": 4.0, "grpc_us": 9.0, "bare_json_us": 0.5}),
    ("mapper", "text", {"nnrp_us": 2.5, "grpc_us": 9.0, "bare_json_us": 0.5}),
    ("parse", "token, text", {"ours_us": 11.0, "vllm_us": 10.0}),
    ("parse", "request, plain", {"ours_us": 600.0, "vllm_us": 500.0}),
    ("stream", "nnrp-tcp x64", {CPU: 50.0, P95: 1.0}),
    ("stream", "grpc x64", {CPU: 130.0, P95: 4.0}),
    ("stream", "http x64", {CPU: 100.0, P95: 1.5}),
    ("length", "plain, 256", {"tokens": 256, "us_per_token": 10.0}),
    ("length", "plain, 16384", {"tokens": 16384, "us_per_token": 13.0}),
    ("cancel", "nnrp-tcp", {"end_p95_ms": 2.0, "abort_p95_ms": 1.0, "late_events": 0}),
    ("cancel", "grpc", {"end_p95_ms": 0.1, "abort_p95_ms": 16.0, "late_events": 1}),
    ("end-to-end", "direct x16", {"tokens_per_s": 1000.0}),
    ("end-to-end", "nnrp-tcp x16", {"tokens_per_s": 980.0}),
    ("end-to-end", "grpc x16", {"tokens_per_s": 960.0}),
    ("end-to-end-tiny", "direct x16", {"tokens_per_s": 2000.0}),
    ("end-to-end-tiny", "grpc x16", {"tokens_per_s": 1800.0}),
    ("sessions", "idle: 1000 nnrp sessions of one connection", {"server_core_percent": 0.2}),
)

# Each target's measured value and whether it is met, from the rows above.
JUDGED = {
    "mapper: a text delta mapped and encoded": (2.5, True),
    "parse: token, text: CPU beside vLLM's parse_delta": (1.1, True),
    "parse: request, plain: CPU beside vLLM's serving object": (1.2, False),
    "stream: nnrp-tcp x64: server CPU a token beside HTTP/SSE": (0.5, True),
    "stream: grpc x64: server CPU a token beside HTTP/SSE": (1.3, False),
    "stream: nnrp-tcp x64: p95 latency beyond HTTP/SSE's": (-0.5, True),
    "stream: grpc x64: p95 latency beyond HTTP/SSE's": (2.5, False),
    "length: cost a token at 16,384 tokens beside 256, no parsers": (1.3, False),
    "cancel: nnrp-tcp: p95 to the last event": (2.0, True),
    "cancel: nnrp-tcp: late events": (0, True),
    "cancel: grpc: p95 to the engine's abort": (16.0, False),
    "cancel: grpc: late events": (1, False),
    "end-to-end: nnrp-tcp x16: tokens/s beside no door": (0.98, True),
    "end-to-end: grpc x16: tokens/s beside no door": (0.96, False),
    "end-to-end-tiny: grpc x16: tokens/s beside no door": (0.9, False),
    "sessions: 1,000 idle NNRP sessions": (0.2, True),
}


def test_targets_are_judged_by_what_was_measured() -> None:
    judged: dict[str, Any] = {
        target.what: (pytest.approx(target.value), target.met) for target in targets(results(*ROWS))
    }
    assert judged == JUDGED


def test_what_a_run_does_not_have_is_not_judged() -> None:
    assert targets(results(("payload", "grpc 1 KiB", {"p50_ms": 1.0}))) == []


def test_a_round_that_one_side_lacks_is_no_pair() -> None:
    made = results(
        ("parse", "token, text", {"ours_us": 11.0, "vllm_us": 10.0}),
        *(("length", "plain, 256", {"tokens": 256, "us_per_token": cost}) for cost in (10.0, 20.0, 1.0)),
        *(("length", "plain, 16384", {"tokens": 16384, "us_per_token": cost}) for cost in (11.0, 22.0)),
    )
    assert [target.value for target in targets(made)] == [pytest.approx(1.1), pytest.approx(1.1)]


def test_a_measurement_that_failed_is_told() -> None:
    made = results(*ROWS)
    made.failures.append("stream, grpc x64, round 2: no end within its time")
    assert "**Failed**: stream, grpc x64, round 2: no end within its time" in report(made, [], {})


def test_the_report_says_machine_targets_medians_and_what_it_does_not_show() -> None:
    made = results(*ROWS)
    text = report(made, [Target("fast", 2.5, 3.0, "µs"), Target("many", 0.9, 0.97, "x", at_least=True)], {})
    lines = text.splitlines()
    assert "| fast | 2.50 µs | ≤ 3.00 µs | yes |" in lines
    assert "| many | 0.90 x | ≥ 0.97 x | **no** |" in lines
    assert "| text | 3 | 2.50 | 9 | 0.500 |" in lines
    assert "A CPU, 2 cores, 24.0 GiB" in text
    assert "vllm 0.26.0" in text
    assert all(f"- {line}" in lines for line in NOT_SHOWN)


def test_a_quick_report_says_that_its_figures_mean_nothing() -> None:
    made = results(*ROWS)
    made.settings["quick"] = True
    assert "Its figures mean nothing" in report(made, [], {})


def test_what_could_not_be_measured_is_said() -> None:
    made = results()
    made.notes.append("long-context: no files")
    assert "Not measured: long-context: no files" in report(made, [], {})


def test_cases_of_other_shapes_get_tables_of_their_own() -> None:
    made = results(("sessions", "idle", {"count": 5}), ("sessions", "active", {"p95_ms": 1.5}))
    lines = report(made, [], {}).splitlines()
    assert "| case | rounds | count |" in lines
    assert "| case | rounds | p95 ms |" in lines


def test_every_scenario_is_explained() -> None:
    assert set(ABOUT) == set(NAMES)


def test_raw_data_come_back_as_they_were_saved(tmp_path: Path) -> None:
    made = results(*ROWS)
    made.records.append(Record("stream", "x", 0, {"a_ms": 1.5}, {"latency_ms": [0.1, 0.2]}))
    made.save(tmp_path)
    assert Results.load(tmp_path) == made
