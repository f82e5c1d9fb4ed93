# SPDX-License-Identifier: MIT
"""A quick run of the cheap scenarios on the two scripted servers: what is written, never how fast it was."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_nnrp.bench.report import REPORT_FILE
from vllm_nnrp.bench.results import Results

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

CASES = {
    "mapper": {"text", "reasoning", "arguments", "logprobs"},
    "parse": {"token, text", "token, reasoning", "token, arguments", "request, plain", "request, tools"},
    "stream": {f"{door} x{count}" for door in ("nnrp-tcp", "nnrp-ipc", "grpc", "http") for count in (1, 16)},
    "cancel": {"nnrp-tcp", "grpc", "http"},
    "length": {f"{kind}, {tokens}" for kind in ("plain", "parsers") for tokens in (256, 1024)},
    "payload": {f"{door} {size} KiB" for door in ("nnrp-tcp", "grpc", "http") for size in (1, 64, 1024)},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    output = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "-m", "vllm_nnrp", "bench", *CASES, "--quick", "--engine", "scripted"]
    done = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Results.load(output), output


def test_every_case_is_measured_once_with_finite_figures(run: tuple[Results, Path]) -> None:
    results, _ = run
    assert {name: set(results.cases(name)) for name in results.scenarios()} == CASES
    assert len(results.records) == sum(map(len, CASES.values()))
    assert all(math.isfinite(value) for record in results.records for value in record.values.values())


def test_streams_count_as_many_tokens_as_they_have_samples(run: tuple[Results, Path]) -> None:
    results, _ = run
    for record in results.of("stream"):
        tokens, streams = record.values["tokens"], record.values["streams"]
        assert tokens >= streams
        assert len(record.samples["latency_ms"]) == min(200, tokens)
        assert min(record.samples["latency_ms"]) > 0
        assert record.values["server_cpu_us_per_token"] > 0


def test_every_cancel_reaches_the_engine_and_nothing_comes_after_it(run: tuple[Results, Path]) -> None:
    results, _ = run
    for record in results.of("cancel"):
        assert record.values["cancels"] == 64
        assert record.values["late_events"] == 0
        assert min(record.samples["abort_ms"]) > 0


def test_the_report_names_the_machine_and_the_versions(run: tuple[Results, Path]) -> None:
    results, output = run
    text = (output / REPORT_FILE).read_text(encoding="utf-8")
    assert results.machine["versions"]["vllm-nnrp"] in text
    assert results.machine["cores"] >= 1
    assert "Its figures mean nothing" in text
    assert len(list(output.glob("*.png"))) == 8
