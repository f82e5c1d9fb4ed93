# SPDX-License-Identifier: MIT
"""The first layer by its rules: whole characters, counts that replace each other, the last log-probabilities."""

from __future__ import annotations

import json

import pytest

from localai_proto import backend_pb2 as pb
from tests.localai_core.replies import RuneLoop, Step, Usage, read_reply, read_stream

HAND = "👋🏽".encode()
RUNES: list[tuple[str, list[bytes], list[str]]] = [
    ("whole characters pass", [b"a", "é".encode()], ["a", "é"]),
    ("half a character waits for the rest", [b"a" + HAND[:2], HAND[2:4], HAND[4:]], ["a", "👋", "🏽"]),
    ("U+FFFD stops all that follows", [b"a", b"b\xef\xbf\xbdc", b"d"], ["a", "b", ""]),
    ("so do bytes that are no UTF-8", [b"a\xff", b"b"], ["a", ""]),
]


@pytest.mark.parametrize(("given", "shown"), [row[1:] for row in RUNES], ids=[row[0] for row in RUNES])
def test_runes(given: list[bytes], shown: list[str]) -> None:
    loop = RuneLoop()
    assert [loop.feed(data) for data in given] == shown


def content(text: str) -> list[pb.ChatDelta]:
    return [pb.ChatDelta(content=text)]


def step(text: str, delta: str = "") -> Step:
    return Step(text, tuple(content(delta)) if delta else ())


STEPS: list[tuple[str, list[pb.Reply], list[Step]]] = [
    ("one for text", [pb.Reply(message=b"a", chat_deltas=content("a"))], [step("a", "a")]),
    ("one for an empty message, with its deltas", [pb.Reply(chat_deltas=content("a"))], [step("", "a")]),
    (
        "none for half a character, whose deltas no callback ever sees",
        [
            pb.Reply(message=HAND[:1], chat_deltas=content("lost")),
            pb.Reply(message=HAND[1:4], chat_deltas=content("b")),
        ],
        [step("👋", "b")],
    ),
]


@pytest.mark.parametrize(("replies", "steps"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS])
def test_callbacks(replies: list[pb.Reply], steps: list[Step]) -> None:
    seen: list[Step] = []
    response = read_stream(replies, seen.append)
    assert seen == steps
    assert [delta for reply in replies for delta in reply.chat_deltas] == list(response.deltas)


def test_the_counts_of_the_last_reply_are_the_counts_even_if_it_has_none() -> None:
    replies = [pb.Reply(prompt_tokens=3, tokens=1), pb.Reply(prompt_tokens=3, tokens=2, timing_token_generation=1.5)]
    assert read_stream(replies, lambda step: None).usage == Usage(3, 2, 0.0, 1.5)
    assert read_stream([*replies, pb.Reply()], lambda step: None).usage == Usage()


def test_the_last_log_probabilities_win() -> None:
    first, last = {"content": [{"token": "a"}]}, {"content": [{"token": "a"}, {"token": "b"}]}
    replies = [pb.Reply(logprobs=json.dumps(value).encode()) for value in (first, last)]
    assert read_stream([*replies, pb.Reply()], lambda step: None).logprobs == last
    assert read_reply(replies[0]).logprobs == first
    assert read_reply(pb.Reply(logprobs=b"{")).logprobs is None
