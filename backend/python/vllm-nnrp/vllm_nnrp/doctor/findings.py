# SPDX-License-Identifier: MIT
"""What a check found, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


class Verdict(StrEnum):
    """A note is worth knowing; a problem keeps the backend from serving."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """`remedy`: what to do about it; only a finding that is ok has none."""

    about: str
    verdict: Verdict
    found: str
    remedy: str = ""


Check = Callable[[], Iterator[Finding]]
STYLES = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.PROBLEM: "bold red"}


def ok(about: str, found: str) -> Finding:
    return Finding(about, Verdict.OK, found)


def note(about: str, found: str, remedy: str) -> Finding:
    return Finding(about, Verdict.NOTE, found, remedy)


def problem(about: str, found: str, remedy: str) -> Finding:
    return Finding(about, Verdict.PROBLEM, found, remedy)


def is_usable(findings: Sequence[Finding]) -> bool:
    return all(finding.verdict is not Verdict.PROBLEM for finding in findings)


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """`{"usable": bool, "findings": [{"about", "verdict", "found", "remedy"}, …]}`."""
    return {
        "usable": is_usable(findings),
        "findings": [
            {"about": each.about, "verdict": each.verdict.value, "found": each.found, "remedy": each.remedy}
            for each in findings
        ],
    }


def print_table(findings: Sequence[Finding], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "what", "found"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        found = Text(finding.found)
        if finding.remedy:
            found.append(f"\n→ {finding.remedy}", style="italic")
        table.add_row(Text(finding.verdict.value, style=STYLES[finding.verdict]), Text(finding.about), found)
    console.print(table)
    problems = sum(finding.verdict is Verdict.PROBLEM for finding in findings)
    console.print("usable" if not problems else f"not usable: {problems} problem{'s' if problems > 1 else ''}")
