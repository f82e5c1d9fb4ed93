# SPDX-License-Identifier: MIT
"""Plots are drawn of what a run has, and of nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.vllm_nnrp_bench.test_report import ROWS, results
from vllm_nnrp.bench.plots import PLOTS, _shown, draw_plots
from vllm_nnrp.bench.report import REPORT_FILE, write_report

PNG = b"\x89PNG"


def test_each_scenario_has_its_plots_and_the_report_shows_them(tmp_path: Path) -> None:
    made = results(*ROWS, ("payload", "grpc 1 KiB", {"bytes": 1024, "p50_ms": 1.0}))
    for record in made.of("stream"):
        record.samples["latency_ms"] = [0.1, 0.2, 0.4]
    assert "| fast" not in write_report(made, tmp_path)
    drawn = {path.stem for path in tmp_path.glob("*.png") if path.read_bytes().startswith(PNG)}
    assert drawn == {name for _, name, _ in PLOTS}
    report = (tmp_path / REPORT_FILE).read_text(encoding="utf-8")
    assert all(f"({name}.png)" in report for name in drawn)


def test_nothing_is_drawn_of_a_scenario_that_did_not_run(tmp_path: Path) -> None:
    made = results(("mapper", "text", {"nnrp_us": 2.0, "grpc_us": 9.0, "bare_json_us": 0.5}))
    assert draw_plots(made, tmp_path) == {"mapper": ["mapper.png"]}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1234, "0.123"), (12.34, "12.3"), (99.96, "100"), (1335.4, "1,335"), (math.nan, "")],
)
def test_a_bar_says_its_value_and_what_was_not_measured_says_nothing(value: float, text: str) -> None:
    assert _shown(value) == text
