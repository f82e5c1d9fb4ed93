# SPDX-License-Identifier: MIT
"""The statistics of the report: percentiles, medians of paired rounds, targets. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

KEPT_SAMPLES = 200  # of a record's sorted samples, evenly by rank: enough to draw them, little enough to commit


@dataclass(frozen=True, slots=True)
class Spread:
    """A set of samples, in their own unit."""

    n: int
    p50: float
    p95: float
    p99: float
    max: float


def percentile(samples: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: the smallest sample that at least `percent` % of them do not exceed.

    Raises ValueError without samples or for a percentage outside 0..100.
    """
    if not samples or not 0 <= percent <= 100:
        raise ValueError("a percentile needs samples and a percentage of 0 to 100")
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(samples: Sequence[float]) -> Spread:
    """Raises ValueError without samples."""
    ordered = sorted(samples)
    p50, p95, p99 = (percentile(ordered, percent) for percent in (50, 95, 99))
    return Spread(len(ordered), p50, p95, p99, ordered[-1])


def thinned(samples: Sequence[float], count: int = KEPT_SAMPLES) -> list[float]:
    """At most `count` of the sorted samples, evenly by rank, smallest and largest among them."""
    ordered = sorted(samples)
    if len(ordered) <= count:
        return ordered
    last = len(ordered) - 1
    return [ordered[round(rank * last / (count - 1))] for rank in range(count)]


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over rounds of ours / theirs, each pair from one round. Raises ValueError for unequal lengths."""
    if len(ours) != len(theirs) or not ours:
        raise ValueError("a ratio needs as many rounds on both sides, and one at least")
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def median_difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over rounds of ours - theirs. Raises ValueError for unequal lengths."""
    if len(ours) != len(theirs) or not ours:
        raise ValueError("a difference needs as many rounds on both sides, and one at least")
    return statistics.median(mine - other for mine, other in zip(ours, theirs, strict=True))


@dataclass(frozen=True, slots=True)
class Target:
    """What was aimed at and what came out; `limit` is a bound from above unless `at_least`."""

    what: str
    value: float
    limit: float
    unit: str = ""  # "x" is a ratio
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit
