# SPDX-License-Identifier: MIT
"""docs/known-reports.md: every row has tests that exist, or a reason; no fault of the old backend is left out."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache

import pytest

from tests.support.reports import ROOT, Row, rows

FAULTS = 37  # numbered rows of the old backend


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("row", rows(), ids=[row.reference for row in rows()])
def test_a_report_has_a_test_that_exists_or_a_reason(row: Row) -> None:
    if not row.tests:
        assert re.match(r"none\b.*: .{10,}", row.covered), "neither a test nor a reason"
    for path, function in row.tests:
        assert function in functions(path), f"{path} has no {function}"


def test_every_fault_of_the_old_backend_has_a_row() -> None:
    numbers = [int(row.reference) for row in rows() if row.reference.isdigit()]
    assert numbers == list(range(1, FAULTS + 1))


def test_no_report_has_two_rows() -> None:
    reports = [report for row in rows() for report in re.findall(r"\b[LV]\d+", row.reference)]
    assert len(reports) == len(set(reports)) > 100


@pytest.mark.parametrize(
    ("name", "path", "test"),
    [
        ("fault_36", "tests/vllm_nnrp/test_run_script.py", "test_arguments_with_spaces_arrive_whole"),
        ("L9508", "tests/vllm_nnrp/test_decode.py", "test_tool_choice"),
    ],
)
def test_a_test_is_found_by_the_name_of_its_row(name: str, path: str, test: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-k", name, path]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False).stdout
    collected = [line.partition("::")[2].partition("[")[0] for line in found.splitlines() if "::" in line]
    assert set(collected) == {test}
