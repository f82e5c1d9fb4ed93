# SPDX-License-Identifier: MIT
"""Percentiles, paired medians, targets: a row a rule, worked out by hand."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import pytest

from vllm_nnrp.bench.figures import Spread, Target, median_difference, median_ratio, percentile, spread, thinned

ONE_TO_TEN = tuple(range(10, 0, -1))


@pytest.mark.parametrize(
    ("samples", "percent", "expected"),
    [
        (ONE_TO_TEN, 50, 5),  # the fifth of ten: half of them do not exceed it
        (ONE_TO_TEN, 51, 6),
        (ONE_TO_TEN, 95, 10),
        (ONE_TO_TEN, 90, 9),
        (ONE_TO_TEN, 0, 1),
        (ONE_TO_TEN, 100, 10),
        ((7.5,), 99, 7.5),
        ((1, 1, 1, 1000), 75, 1),
        ((1, 1, 1, 1000), 76, 1000),
    ],
)
def test_a_percentile_is_the_smallest_sample_that_so_many_do_not_exceed(
    samples: Sequence[float], percent: float, expected: float
) -> None:
    assert percentile(samples, percent) == expected


@pytest.mark.parametrize(("samples", "percent"), [((), 50), ((1.0,), -1), ((1.0,), 101)])
def test_a_percentile_of_nothing_or_beyond_all_is_refused(samples: Sequence[float], percent: float) -> None:
    with pytest.raises(ValueError, match="a percentile needs samples"):
        percentile(samples, percent)


def test_the_middle_percentile_of_an_odd_number_is_the_standard_librarys_median() -> None:
    seeded = random.Random(5)
    for size in (1, 3, 7, 101):
        samples = [seeded.expovariate(1) for _ in range(size)]
        assert percentile(samples, 50) == statistics.median(samples)


def test_a_spread_has_number_percentiles_and_the_largest() -> None:
    assert spread(range(1, 201)) == Spread(n=200, p50=100, p95=190, p99=198, max=200)


@pytest.mark.parametrize(
    ("samples", "count", "kept"),
    [
        ((3, 1, 2), 5, [1, 2, 3]),
        ((5, 4, 3, 2, 1), 3, [1, 3, 5]),
        (range(101), 5, [0, 25, 50, 75, 100]),
        (range(1000), 2, [0, 999]),
    ],
)
def test_thinned_samples_are_sorted_and_keep_both_ends(
    samples: Sequence[float], count: int, kept: Sequence[float]
) -> None:
    assert thinned(samples, count) == kept


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio", "difference"),
    [
        ((2.0,), (4.0,), 0.5, -2.0),
        # A slow round hits both of its pair: the ratios are 0.5, 0.5 and 0.8, the medians alone would say 0.4.
        ((2.0, 20.0, 4.0), (4.0, 40.0, 5.0), 0.5, -2.0),
        ((1.0, 3.0), (1.0, 1.0), 2.0, 1.0),
    ],
)
def test_rounds_are_compared_in_pairs(
    ours: Sequence[float], theirs: Sequence[float], ratio: float, difference: float
) -> None:
    assert median_ratio(ours, theirs) == ratio
    assert median_difference(ours, theirs) == difference


@pytest.mark.parametrize("compare", [median_ratio, median_difference])
@pytest.mark.parametrize(("ours", "theirs"), [((), ()), ((1.0,), (1.0, 2.0))])
def test_rounds_without_their_pair_are_refused(compare: object, ours: Sequence[float], theirs: Sequence[float]) -> None:
    with pytest.raises(ValueError, match="as many rounds on both sides"):
        compare(ours, theirs)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("value", "limit", "at_least", "met"),
    [
        (3.0, 3.0, False, True),
        (3.1, 3.0, False, False),
        (0.97, 0.97, True, True),
        (0.96, 0.97, True, False),
        (-1.0, 0.0, False, True),
    ],
)
def test_a_target_is_met_on_its_limit(value: float, limit: float, at_least: bool, met: bool) -> None:
    assert Target("t", value, limit, "x", at_least).met is met
