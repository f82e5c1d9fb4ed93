# SPDX-License-Identifier: MIT
"""The values of the tasks: what a model is for, and what follows from a result."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from chatdelta import CandidateScore, Embedding, EmbeddingLayout, ScoredToken, Task, Usage
from chatdelta import UnsupportedOperation as Refused
from chatdelta.testing import SCRIPTED_INFO


@pytest.mark.parametrize(
    ("served", "task", "refusal"),
    [
        ({Task.GENERATE}, Task.GENERATE, None),
        ({Task.EMBED, Task.RERANK}, Task.RERANK, None),
        ({Task.GENERATE}, Task.EMBED, "the loaded model generates text; this needs one that makes embeddings"),
        (
            {Task.RERANK, Task.EMBED},
            Task.GENERATE,
            "the loaded model makes embeddings and ranks documents; this needs one that generates text",
        ),
    ],
)
def test_a_model_is_for_its_tasks_only(served: set[Task], task: Task, refusal: str | None) -> None:
    info = replace(SCRIPTED_INFO, tasks=frozenset(served))
    if refusal is None:
        info.require(task)
        return
    with pytest.raises(Refused) as caught:
        info.require(task)
    assert (str(caught.value), caught.value.code) == (refusal, "unsupported_operation")


def test_a_model_generates_unless_it_is_said_otherwise() -> None:
    assert SCRIPTED_INFO.tasks == {Task.GENERATE}


def test_what_follows_from_a_result() -> None:
    embedding = Embedding(array("f", [1, 2, 3, 4, 5, 6]), 2, EmbeddingLayout.PER_TOKEN, prompt_tokens=3)
    assert (embedding.vectors, embedding.usage) == (3, Usage(prompt_tokens=3))
    assert CandidateScore((ScoredToken("a", -0.5), ScoredToken("b", -1.25))).log_prob == -1.75
