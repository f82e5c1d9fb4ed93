# SPDX-License-Identifier: MIT
"""Which answers are asked for again."""

from __future__ import annotations

import pytest

from localai_proto import backend_pb2 as pb
from tests.localai_core.attempts import compute
from tests.localai_core.backends import PlayedBackend
from tests.localai_core.replies import Step

CALL = pb.ChatDelta(tool_calls=[pb.ToolCallDelta(name="f")])
THOUGHT = pb.ChatDelta(reasoning_content="r")

ROWS: list[tuple[str, pb.Reply, int, int]] = [
    ("text", pb.Reply(message=b"a"), 0, 1),
    ("text of a delta alone", pb.Reply(chat_deltas=[pb.ChatDelta(content="a")]), 0, 1),
    ("a line break of a delta", pb.Reply(chat_deltas=[pb.ChatDelta(content="\n")]), 0, 1),
    ("a call", pb.Reply(chat_deltas=[CALL]), 0, 1),
    ("nothing", pb.Reply(tokens=5), 0, 6),
    ("blanks in the message", pb.Reply(message=b" \n", tokens=5), 0, 6),
    ("reasoning alone", pb.Reply(chat_deltas=[THOUGHT], tokens=5), 0, 6),
    ("reasoning alone, below the limit", pb.Reply(chat_deltas=[THOUGHT], tokens=5), 6, 6),
    ("reasoning alone, at the limit", pb.Reply(chat_deltas=[THOUGHT], tokens=6), 6, 1),
]


@pytest.mark.parametrize(("reply", "max_tokens", "attempts"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_attempts(reply: pb.Reply, max_tokens: int, attempts: int) -> None:
    backend = PlayedBackend([reply])
    options = pb.PredictOptions(Tokens=max_tokens)
    assert compute(backend, options).attempts == backend.calls == attempts
    steps: list[Step] = []
    assert compute(backend, options, on_step=steps.append).attempts == attempts
    assert len(steps) == attempts, "what a stream showed stays shown"


def test_the_first_answer_that_says_something_ends_it() -> None:
    empty, answer = [pb.Reply(tokens=1)], [pb.Reply(message=b"a", tokens=2)]
    outcome = compute(PlayedBackend(empty, empty, answer), pb.PredictOptions())
    assert (outcome.attempts, outcome.response.text, outcome.response.usage.completion_tokens) == (3, "a", 2)


def test_an_endpoint_may_ask_again_but_not_where_a_delta_had_content() -> None:
    asked: list[bool] = []

    def always() -> bool:
        asked.append(True)
        return True

    assert compute(PlayedBackend([pb.Reply(message=b"a")]), pb.PredictOptions(), should_retry=always).attempts == 6
    assert len(asked) == 6
    answer = [pb.Reply(message=b"a", chat_deltas=[pb.ChatDelta(content="a")])]
    assert compute(PlayedBackend(answer), pb.PredictOptions(), should_retry=always).attempts == 1
