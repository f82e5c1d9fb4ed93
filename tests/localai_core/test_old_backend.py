# SPDX-License-Identifier: MIT
"""That this client can fail: replies as LocalAI's present vllm backend writes them, and what users see of them.

Every row has the replies that should have been sent, too, and shows that with those the user sees what the model said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from localai_proto import backend_pb2 as pb
from tests.localai_core.ask import Ask
from tests.localai_core.attempts import Backend
from tests.localai_core.backends import PlayedBackend
from tests.localai_core.chat import chat
from tests.localai_core.chat_stream import chat_stream
from tests.localai_core.realtime import realtime
from tests.localai_core.shown import Shown
from tests.localai_core.written import PLAIN, TOOLS, both, reply

Endpoint = Callable[[Backend, Ask], Shown]
Seen = tuple[str, str, list[tuple[str, str]]]  # text, reasoning, (name, arguments) of calls
MARKUP = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
F = ("f", "{}")
END = reply(tokens=4)

ROWS: list[tuple[str, Endpoint, Ask, list[pb.Reply], Seen, list[pb.Reply], Seen]] = [
    (
        "reasoning sent as text and once more at the end: a user sees the answer twice, reasoning in it",
        chat_stream,
        PLAIN,
        [both("<think>"), both("r"), both("</think>"), both("a"), reply(content="a", reasoning="r", tokens=4)],
        ("aa", "rr", []),
        [reply(reasoning="r"), both("a"), END],
        ("a", "r", []),
    ),
    (
        "the same without a word of thinking: a parser that was not told takes the answer for reasoning",
        chat,
        PLAIN,
        [reply("391", "", reasoning="391", tokens=4)],
        ("", "391", []),
        [reply("391", "391", tokens=4)],
        ("391", "", []),
    ),
    (
        "with tools the thinking is in the content",
        chat_stream,
        TOOLS,
        [both("<think>"), both("r"), both("</think>"), both("a"), reply(reasoning="r", tokens=4)],
        ("<think>r</think>a", "r", []),
        [reply(reasoning="r"), reply(content="a"), END],
        ("a", "r", []),
    ),
    (
        "a parser that failed leaves its markup in the content",
        chat_stream,
        TOOLS,
        [both("<tool_call>\n"), both('{"name": "f", '), both('"arguments": {}}\n</tool_call>'), END],
        (MARKUP, "", [F]),
        [reply(calls=[(0, "i", "f", "{}")]), END],
        ("", "", [F]),
    ),
    (
        "a JSON answer with a name turns into a call and is cut",
        chat_stream,
        TOOLS,
        [both('{"name": "Ada"'), both(', "born": 1815}'), END],
        ('{"name": "Ada"', "", [("Ada", "{}")]),
        [reply(content='{"name": "Ada"'), reply(content=', "born": 1815}'), END],
        ('{"name": "Ada", "born": 1815}', "", []),
    ),
    (
        "a call extracted a second time from the whole text",
        chat_stream,
        TOOLS,
        [reply(calls=[(0, "i", "f", "{}")]), reply(calls=[(1, "j", "f", "{}")], tokens=4)],
        ("", "", [F, F]),
        [reply(calls=[(0, "i", "f", "{}")]), END],
        ("", "", [F]),
    ),
    (
        "one replacement character, and no text follows",
        chat_stream,
        PLAIN,
        [both("a"), both("\ufffd"), both("b"), END],
        ("a", "", []),
        [both("a"), reply("?", "\ufffd"), both("b"), END],
        ("a?b", "", []),
    ),
    (
        "an answer repeated at the end is spoken twice",
        realtime,
        PLAIN,
        [both("a"), reply(content="a", tokens=4)],
        ("aa", "", []),
        [both("a"), END],
        ("a", "", []),
    ),
    (
        "an error sent as text is an answer",
        chat_stream,
        PLAIN,
        [both("a"), both("Error: CUDA out of memory")],
        ("aError: CUDA out of memory", "", []),
        [both("a")],  # and then the status, which reaches the user as an error
        ("a", "", []),
    ),
]


def seen(endpoint: Endpoint, ask: Ask, replies: Sequence[pb.Reply]) -> Seen:
    shown = endpoint(PlayedBackend(replies), ask)
    return shown.text, shown.reasoning, [(call.name, call.arguments) for call in shown.calls]


@pytest.mark.parametrize(
    ("endpoint", "ask", "wrong", "damage", "right", "meant"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_damage(
    endpoint: Endpoint, ask: Ask, wrong: list[pb.Reply], damage: Seen, right: list[pb.Reply], meant: Seen
) -> None:
    assert seen(endpoint, ask, wrong) == damage
    assert seen(endpoint, ask, right) == meant


def test_counts_on_the_last_reply_alone_are_lost_with_it() -> None:
    """A stream that its client cancels, or that fails, has no last reply."""
    assert chat_stream(PlayedBackend([both("a"), both("b")]), PLAIN).usage.completion_tokens == 0
    counted = [reply("a", "a", tokens=1), reply("b", "b", tokens=2)]
    assert chat_stream(PlayedBackend(counted), PLAIN).usage.completion_tokens == 2


def test_an_answer_cut_at_a_limit_of_the_backends_own_ends_as_if_it_were_whole() -> None:
    shown = chat_stream(PlayedBackend([both("a"), reply(tokens=200)]), PLAIN)
    assert shown.finish_reason == "stop"


def test_a_count_that_misses_the_limit_by_one_costs_six_answers() -> None:
    few = replace(PLAIN, max_tokens=4)
    assert chat(PlayedBackend([reply(reasoning="r", tokens=3)]), few).attempts == 6
    assert chat(PlayedBackend([reply(reasoning="r", tokens=4)]), few).attempts == 1
