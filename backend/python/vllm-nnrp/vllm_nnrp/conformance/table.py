# SPDX-License-Identifier: MIT
"""A run as a table on the terminal: one row a case; what is wrong, below it; and the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vllm_nnrp.client.render import printable
from vllm_nnrp.conformance.models import PROFILE, Outcome
from vllm_nnrp.conformance.verdict import Verdict

STYLES: Mapping[Outcome, str] = {"passed": "green", "failed": "bold red", "skipped": "yellow"}


def show(console: Console, verdicts: Sequence[Verdict], title: str, not_claimed: int) -> None:
    """The table, the findings of what did not pass, and the sum."""
    console.print(Text(title, "bold"), soft_wrap=True)
    console.print(_table(verdicts))
    for verdict in verdicts:
        for finding in verdict.findings:
            line = Text.assemble(
                (verdict.result.outcome, STYLES[verdict.result.outcome]),
                f" {verdict.case.id}: {printable(finding)}",
            )
            console.print(line, soft_wrap=True)
    console.print(f"\n{summary_of(verdicts, not_claimed)}", soft_wrap=True)


def _table(verdicts: Iterable[Verdict]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("case", no_wrap=True)
    for name in ("status", "outcome", "terminal"):
        table.add_column(name)
    for name in ("events", "ms"):
        table.add_column(name, justify="right")
    for verdict in verdicts:
        result = verdict.result
        was_run = result.outcome != "skipped"
        table.add_row(
            Text(printable(result.id.removeprefix(f"{PROFILE}."))),
            verdict.case.status,
            Text(result.outcome, STYLES[result.outcome]),
            result.terminal if was_run else "",
            str(len(result.events or ())) if was_run else "",
            f"{verdict.duration_s * 1000:.0f}" if was_run else "",
        )
    return table


def summary_of(verdicts: Sequence[Verdict], not_claimed: int) -> str:
    """`31 passed, 1 failed, 2 not claimed`."""
    counts = Counter(verdict.result.outcome for verdict in verdicts)
    parts = [f"{counts[outcome]} {outcome}" for outcome in STYLES if counts[outcome] or outcome == "passed"]
    return ", ".join([*parts, *([f"{not_claimed} not claimed"] if not_claimed else [])])
