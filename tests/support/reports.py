# SPDX-License-Identifier: MIT
"""docs/known-reports.md as data: which tests stand for which report, and the words that `pytest -k` finds them by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/known-reports.md"
ROW = re.compile(r"^\| (?P<reference>[^|]+) \| (?P<what>[^|]+) \| (?P<covered>[^|]+) \|$")
HEADS = ("#", "Report", "---")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NO_WORD = re.compile(r"[^\w-]+")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a reference (or several), and the tests or the reason that cover it."""

    reference: str
    covered: str

    @property
    def tests(self) -> tuple[tuple[str, str], ...]:
        """(file, function) of each."""
        return tuple(TEST.findall(self.covered))

    @property
    def names(self) -> tuple[str, ...]:
        """`fault_20` for a fault of the old backend, a report's own number for all others."""
        references = [NO_WORD.sub("_", each.strip()) for each in self.reference.split(",")]
        return tuple(f"fault_{each}" if each.isdigit() or each == "core" else each for each in references)


@cache
def rows() -> tuple[Row, ...]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [match for line in lines if (match := ROW.match(line))]
    return tuple(Row(row["reference"], row["covered"]) for row in found if row["reference"] not in HEADS)


@cache
def names_by_test() -> Mapping[tuple[str, str], frozenset[str]]:
    """(file, function) → the names of the rows that it stands for."""
    named: dict[tuple[str, str], frozenset[str]] = {}
    for row in rows():
        for test in row.tests:
            named[test] = named.get(test, frozenset()) | set(row.names)
    return named
