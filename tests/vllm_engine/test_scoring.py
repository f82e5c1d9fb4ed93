# SPDX-License-Identifier: MIT
"""Where a candidate begins, and how its log-probabilities are put together from several of vLLM's answers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from chatdelta import UnsupportedOperation
from vllm_engine.scoring import Candidate, common_length


@pytest.mark.parametrize(
    ("prompt", "full", "length"),
    [
        pytest.param([1, 2, 3], [1, 2, 3, 4, 5], 3, id="the candidate follows the prompt"),
        pytest.param([1, 2, 3], [1, 2, 9], 2, id="its first characters join the prompt's last"),
        pytest.param([1, 2, 3], [7], 0, id="all is one token"),
        pytest.param([], [4], 0, id="no prompt"),
        pytest.param([1, 2], [1, 2], 2, id="nothing follows"),
        pytest.param([1, 2, 3], [1, 2], 2, id="less than the prompt"),
        pytest.param([1, 2, 3, 4], [1, 9, 3, 4], 1, id="equal again later"),
    ],
)
def test_a_candidates_tokens_begin_behind_the_common_ones(prompt: list[int], full: list[int], length: int) -> None:
    assert common_length(prompt, full) == length


def answer(token_ids: Sequence[int], end: int, *, cached: int, kept: int | None = None) -> Any:
    """vLLM's for the prompt `token_ids[:end]`, of which `cached` tokens were in its cache; token i has -i.

    `kept`: how many entries the list has, which differs between vLLM's two model runners; those of cached tokens are
    wrong in the one and missing in the other.
    """
    entries: list[Any] = [{-1: SimpleNamespace(logprob=99.0)} for _ in range(end)]
    for position in range(cached + 1, end):
        entries[position] = {token_ids[position]: SimpleNamespace(logprob=-float(position))}
    last = {token_ids[end]: SimpleNamespace(logprob=-float(end))}
    return SimpleNamespace(
        num_cached_tokens=cached,
        prompt_logprobs=entries if kept is None else entries[-kept:],
        outputs=[SimpleNamespace(logprobs=[last])],
    )


TOKEN_IDS = tuple(range(100, 112))


@pytest.mark.parametrize("shortened", [False, True])
@pytest.mark.parametrize(
    ("start", "cached"),
    [
        pytest.param(9, [8], id="the cache ends before the candidate: one answer"),
        pytest.param(8, [8, 4], id="and right at its start: its first token takes another"),
        pytest.param(3, [8, 4, 0], id="deep in it: block by block"),
        pytest.param(11, [8], id="one token: no log-probability of the prompt is needed"),
        pytest.param(5, [0], id="nothing cached"),
    ],
)
def test_log_probabilities_come_from_the_back(start: int, cached: list[int], shortened: bool) -> None:
    candidate = Candidate(TOKEN_IDS, start, end=11)
    for count in cached:
        assert not candidate.is_known
        kept = max(1, candidate.end - count) if shortened else None
        candidate.take(answer(TOKEN_IDS, candidate.end, cached=count, kept=kept))
    assert candidate.is_known
    assert candidate.logprobs == [-float(position) for position in range(start, 12)]


@pytest.mark.parametrize("entry", [None, {}, {-1: SimpleNamespace(logprob=-1.0)}])
def test_a_missing_log_probability_is_not_made_up(entry: Any) -> None:
    output = answer(TOKEN_IDS, 11, cached=0)
    output.prompt_logprobs[10] = entry
    with pytest.raises(UnsupportedOperation, match="no log-probabilities of prompt tokens"):
        Candidate(TOKEN_IDS, 9, end=11).take(output)
