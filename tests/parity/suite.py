# SPDX-License-Identifier: MIT
"""Runs entries in every mode and collects what was missed; and the property that splitting changes nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.parity.corpus import entries
from tests.parity.entries import Entry, Family
from tests.parity.native_defects import NATIVE_DEFECTS
from tests.parity.runs import Bench, Outcome
from tests.parity.score import misses

RANDOM_SPLITS = 200
LONG_TOKENS = 300  # an output longer than this is split in fewer ways
LONG_SPLITS = 15


@dataclass(frozen=True, slots=True)
class Miss:
    entry: Entry
    mode: str
    what: str


@dataclass(slots=True)
class Tally:
    """Misses of both sides, and how many outcomes were looked at.

    `native` are ours too, in entries that vLLM's own parser is known to read otherwise (native_defects).
    """

    ours: list[Miss] = field(default_factory=list)
    native: list[Miss] = field(default_factory=list)
    oracle: list[Miss] = field(default_factory=list)
    entries: int = 0
    outcomes: int = 0
    splits: int = 0


def mended(tally: Tally, entries_run: set[str]) -> list[str]:
    """Entries of the list of defects that are missed no more: they have to leave it."""
    return sorted((NATIVE_DEFECTS.keys() & entries_run) - {miss.entry.name for miss in tally.native})


def delta_sizes(entry: Entry, count: int) -> Mapping[str, Sequence[int]]:
    """The sizes every entry is played with; the random ones are the same in every run."""
    seeded = random.Random(entry.name)
    return {"1": (1,), "2-5": [seeded.randint(2, 5) for _ in range(max(1, count))], "all": (max(1, count),)}


async def score_family(family: Family, root: Path, tally: Tally, *, every_split: bool, modes: Sequence[str]) -> None:
    bench = Bench(family, root)
    for entry in entries((family,)):
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
        if side is tally.ours and entry.name in NATIVE_DEFECTS:
            side = tally.native
        side.append(Miss(entry, mode, "; ".join(what)))


async def check_splits(bench: Bench, entry: Entry, tally: Tally, *, splits: int | None = None) -> None:
    """Whatever the deltas' sizes, the result is the one of single tokens, and streamed equals the body."""
    count = len(bench.token_ids(entry))
    wanted, _ = await bench.ours(entry, (1,))
    every = list(all_splits(entry, count))
    if splits is None and count > LONG_TOKENS:
        splits = LONG_SPLITS
    if splits is not None:
        every = random.Random(entry.name).sample(every, min(splits, len(every)))
    for sizes in every:
        streamed, body = await bench.ours(entry, sizes)
        tally.splits += 1
        for mode, outcome in (("stream", streamed), ("body", body)):
            if outcome != wanted:
                tally.ours.append(Miss(entry, f"{mode}, split {list(sizes)[:8]}", f"{outcome} is not {wanted}"))
                return


def all_splits(entry: Entry, count: int) -> Iterator[Sequence[int]]:
    """Every single cut point, every fixed size, and seeded random splits."""
    for cut in range(1, count):
        yield (cut, count - cut)
    for size in range(1, count + 1):
        yield (size,)
    seeded = random.Random(f"splits of {entry.name}")
    for _ in range(RANDOM_SPLITS):
        yield [seeded.randint(1, 9) for _ in range(max(1, count))]
