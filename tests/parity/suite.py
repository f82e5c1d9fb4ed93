# SPDX-License-Identifier: MIT
"""Runs entries in every mode and collects what was missed; and the property that splitting changes nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.parity.corpus import entries
from tests.parity.entries import Entry, Family
from tests.parity.runs import Bench, Outcome
from tests.parity.score import misses
from tests.parity.splits import all_splits, differing_splits


@dataclass(frozen=True, slots=True)
class Miss:
    entry: Entry
    mode: str
    what: str


@dataclass(slots=True)
class Tally:
    """Misses of both sides, and how many outcomes were looked at."""

    ours: list[Miss] = field(default_factory=list)
    oracle: list[Miss] = field(default_factory=list)
    entries: int = 0
    outcomes: int = 0
    splits: int = 0


def delta_sizes(entry: Entry, count: int) -> Mapping[str, Sequence[int]]:
    """The sizes every entry is played with; the random ones are the same in every run."""
    seeded = random.Random(entry.name)
    return {"1": (1,), "2-5": [seeded.randint(2, 5) for _ in range(max(1, count))], "all": (max(1, count),)}


async def score_family(family: Family, root: Path, tally: Tally, *, every_split: bool, modes: Sequence[str]) -> None:
    found = list(entries((family,)))
    if not found:
        return
    bench = Bench(found[0].family, root)
    for entry in found:
        tally.entries += 1
        await score_entry(bench, entry, tally, modes)
        if every_split:
            await check_splits(bench, entry, tally)


async def score_entry(bench: Bench, entry: Entry, tally: Tally, modes: Sequence[str], *, oracle: bool = True) -> None:
    count = len(bench.token_ids(entry))
    for mode, sizes in delta_sizes(entry, count).items():
        if mode not in modes:
            continue
        streamed, body = await bench.ours(entry, sizes)
        _add(tally, tally.ours, entry, f"stream {mode}", streamed)
        _add(tally, tally.ours, entry, f"body {mode}", body)
        if oracle:
            _add(tally, tally.oracle, entry, f"stream {mode}", await bench.oracle_streamed(entry, sizes))
    streamed, _ = await bench.ours(entry, (1,), by_character=True)
    _add(tally, tally.ours, entry, "stream of characters", streamed)
    if oracle:
        _add(tally, tally.oracle, entry, "body", await bench.oracle_complete(entry))


def _add(tally: Tally, side: list[Miss], entry: Entry, mode: str, outcome: Outcome) -> None:
    tally.outcomes += 1
    if what := misses(entry.expected, outcome):
        side.append(Miss(entry, mode, "; ".join(what)))


async def check_splits(bench: Bench, entry: Entry, tally: Tally, *, limit: int | None = None) -> None:
    """Whatever the deltas' sizes, the result is the one of single tokens; `limit`: of a seeded sample of the splits."""
    splits = list(all_splits(entry, len(bench.token_ids(entry))))
    if limit is not None:
        splits = random.Random(entry.name).sample(splits, min(limit, len(splits)))
    tally.splits += len(splits)
    for sizes, outcome in await differing_splits(bench, entry, splits):
        tally.ours.append(Miss(entry, f"split {list(sizes)[:8]}", f"{outcome} is not that of single tokens"))
