# SPDX-License-Identifier: MIT
"""docs/known-reports.md: every row has tests that exist, or a reason; no fault of the old backend is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| (?P<ref>[^|]+) \| (?P<what>[^|]+) \| (?P<test>[^|]+) \|$")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
FAULTS = 37  # numbered rows of the old backend


def rows() -> list[tuple[str, str]]:
    """(reference, what covers it) of each row, without the tables' heads."""
    text = (ROOT / "docs/known-reports.md").read_text(encoding="utf-8")
    found = [match for line in text.splitlines() if (match := ROW.match(line))]
    return [(row["ref"], row["test"]) for row in found if row["ref"] not in ("#", "Report", "---")]


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize(("reference", "test"), rows(), ids=[reference for reference, _ in rows()])
def test_a_report_has_a_test_that_exists_or_a_reason(reference: str, test: str) -> None:
    named = TEST.findall(test)
    if not named:
        assert re.match(r"none\b.*: .{10,}", test), "neither a test nor a reason"
    for path, function in named:
        assert function in functions(path), f"{path} has no {function}"


def test_every_fault_of_the_old_backend_has_a_row() -> None:
    numbers = [int(reference) for reference, _ in rows() if reference.isdigit()]
    assert numbers == list(range(1, FAULTS + 1))


def test_no_report_has_two_rows() -> None:
    reports = [report for reference, _ in rows() for report in re.findall(r"\b[LV]\d+", reference)]
    assert len(reports) == len(set(reports)) > 100
