# SPDX-License-Identifier: MIT
"""Reasoning by tags: whole texts, streams, and reasoning that came in deltas."""

from __future__ import annotations

import pytest

from tests.localai_core.reasoning import Extractor, split, split_complete, start_tag_in

SPLITS: list[tuple[str, str, str, tuple[str, str]]] = [
    ("no tag", "a b", "", ("", "a b")),
    ("a pair", "<think>\nr\n</think>\n\na", "", ("r", "\n\na")),
    ("text before it stays", "a<think>r</think>b", "", ("r", "ab")),
    ("an open tag takes the rest", "a<think>r b", "", ("r b", "a")),
    ("two pairs", "<think>r</think>a<think>s</think>b", "", ("r\n\ns", "ab")),
    ("an empty pair says nothing", "<think>\n</think>a", "", ("", "a")),
    ("a closing tag alone is text", "r</think>a", "", ("", "r</think>a")),
    ("unless the prompt opened it", "r</think>a", "<think>", ("r", "a")),
    ("which takes an answer that never thought", "a", "<think>", ("a", "")),
    ("every family's tags", "[THINK]r[/THINK]<|channel>thought s<channel|>a", "", ("r\n\ns", "a")),
]


@pytest.mark.parametrize(("text", "start", "parts"), [row[1:] for row in SPLITS], ids=[row[0] for row in SPLITS])
def test_splits(text: str, start: str, parts: tuple[str, str]) -> None:
    assert split(text, start) == parts


def test_in_a_whole_answer_a_tag_of_the_prompt_counts_only_if_closed() -> None:
    assert split_complete("a", "<think>") == ("", "a")
    assert split_complete("r</think>a", "<think>") == ("r", "a")
    assert split_complete("<think>a", "") == ("a", "")


def test_a_prompt_is_believed_to_end_in_any_tag_it_holds() -> None:
    """Also in one that it closes again, as templates do where thinking is switched off."""
    assert start_tag_in("<|im_start|>assistant\n<think>\n\n</think>\n\n") == "<think>"
    assert start_tag_in("<|im_start|>assistant\n") == ""


STREAMS: list[tuple[str, list[str], str, list[tuple[str, str]]]] = [
    (
        "reasoning and content as they come",
        ["<think>", "r", " s", "</think>", "a", "b"],
        "",
        [("", ""), ("r", ""), (" s", ""), ("", ""), ("", "a"), ("", "b")],
    ),
    ("a tag in pieces leaks its beginning", ["<th", "ink>r"], "", [("", "<th"), ("r", "")]),
    ("a second tag goes on after a blank line", ["<think>r</think>a", "<think>s"], "", [("r", "a"), ("\n\ns", "")]),
    ("after a prompt's tag all is reasoning", ["a", "b"], "<think>", [("a", ""), ("b", "")]),
]


@pytest.mark.parametrize(("tokens", "start", "parts"), [row[1:] for row in STREAMS], ids=[row[0] for row in STREAMS])
def test_streams(tokens: list[str], start: str, parts: list[tuple[str, str]]) -> None:
    extractor = Extractor(start)
    assert [extractor.feed(token) for token in tokens] == parts


DELTAS: list[tuple[str, list[str], list[str]]] = [
    ("reasoning without tags passes as it is", ["\n", "a ", "b", ""], ["\n", "a ", "b", ""]),
    ("its tags are taken out", ["<think>", "a", "</think>"], ["", "a", ""]),
]


@pytest.mark.parametrize(("deltas", "shown"), [row[1:] for row in DELTAS], ids=[row[0] for row in DELTAS])
def test_reasoning_of_deltas(deltas: list[str], shown: list[str]) -> None:
    extractor = Extractor()
    assert [extractor.feed_reasoning_delta(delta) for delta in deltas] == shown


def test_a_second_attempt_hides_its_reasoning_and_shows_its_content() -> None:
    extractor = Extractor()
    extractor.feed("<think>r")
    extractor.clear_and_hide_reasoning()
    assert extractor.feed("<think>r</think>a") == ("", "a")
    assert extractor.feed_reasoning_delta("r") == ""
