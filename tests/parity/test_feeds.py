# SPDX-License-Identifier: MIT
"""What is put around native parsers, without vLLM: how they are fed, and the guards on what they find."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.parity.test_readers import joined, new_sink
from vllm_engine.calls.fragments import Fragments
from vllm_engine.calls.gemma import QUOTE, keep_bare_values
from vllm_engine.calls.one_line import OneLineJson
from vllm_engine.calls.translated import Translated
from vllm_engine.partial import held_back
from vllm_engine.reasoning import NativeReasoning
from vllm_engine.whole_reasoning import WholeTextReasoning


class Recorder:
    """A CallReader that keeps what it is given."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int | None] = []

    def feed(self, text: str, token_id: int | None) -> None:
        self.texts.append(text)
        self.token_ids.append(token_id)

    def finish(self, *, cut: bool) -> None: ...


def message(content: str | None = None, *calls: tuple[int, str | None, str | None]) -> Any:
    """A native DeltaMessage; a call is (index, name, arguments)."""
    deltas = [
        SimpleNamespace(index=index, id=None, function=SimpleNamespace(name=name, arguments=arguments))
        for index, name, arguments in calls
    ]
    return SimpleNamespace(content=content, tool_calls=deltas)


GUARDED = {
    "an object in pieces": (['{"a": ', '"}"', "}"], '{"a": "}"}', True),
    "a brace too many": (['{"a": 1}', "}"], '{"a": 1}', True),
    "more of the call behind them": (['{"a": {}}, "name": "f"}'], '{"a": {}}', True),
    "white space around them": ([" \n", "{}", " "], "{}", True),
    "nothing": ([], "{}", True),
    "half of a surrogate pair": (['{"a": "\ud83d"}'], '{"a": "\\ud83d"}', True),
    "no end": (['{"a": 1'], '{"a": 1', False),
    "no object": (["[1]"], "[1]", False),
}


@pytest.mark.parametrize("rule", GUARDED)
def test_arguments_are_one_json_object(rule: str) -> None:
    pieces, arguments, whole = GUARDED[rule]
    sink = new_sink()
    fragments = Fragments(sink)
    fragments.add(message("Well. ", (0, "f", None)))
    for piece in pieces:
        fragments.add(message(None, (0, None, piece)))
    fragments.close(cut=False)
    delta = sink.take()
    assert (delta.content, list(joined(delta.tool_calls))) == ("Well. ", [("f", arguments)])
    assert sink.called == whole


def test_arguments_of_a_call_without_a_name_are_dropped() -> None:
    sink = new_sink()
    fragments = Fragments(sink)
    fragments.add(message(None, (0, None, "{}"), (1, "g", "{}")))
    assert list(joined(sink.take().tool_calls)) == [("g", "{}")]


def test_json_behind_the_marker_is_on_one_line() -> None:
    recorder = Recorder()
    reader = OneLineJson(recorder, "<call>")
    for text in ("{\n}\n", "<call>", "f\n", '{\n"a":\r\n "x\n\\"\n"', "\n}", "\n```"):
        reader.feed(text, 7)
    assert recorder.texts == ["{\n}\n", "<call>", "f\n", '{ "a":   "x\\n\\"\\n"', " }", "\n```"]
    assert set(recorder.token_ids) == {7}


def test_words_are_translated_and_their_tokens_are_not_said() -> None:
    recorder = Recorder()
    reader = Translated(recorder, {"<a>": "<b>"})
    reader.feed("<a>", 1)
    reader.feed("a", 2)
    assert (recorder.texts, recorder.token_ids) == (["<b>", "a"], [None, 2])


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("a:null,b:[1,-2.5e3,true]}", {"a": None, "b": [1, -2500.0, True]}),
        ("a:{b:{c:false}}}", {"a": {"b": {"c": False}}}),
        (f"a:{QUOTE}null,1{QUOTE},b:[{QUOTE}2{QUOTE}]}}", {"a": "null,1", "b": ["2"]}),
        ("a:word,b:1x}", {"a": "word", "b": "1x"}),
    ],
)
def test_bare_values_keep_their_type(arguments: str, value: dict[str, Any]) -> None:
    engine = SimpleNamespace(_arg_converter=all_text)
    keep_bare_values(SimpleNamespace(_parser_engine=engine))
    assert json.loads(engine._arg_converter(arguments, False)) == value


def all_text(arguments: str, partial: bool) -> str:
    """As Gemma 4's native converter: every value that is no container becomes text. Not for braces inside text."""
    strings = iter(arguments.split(QUOTE)[1::2])
    parts = arguments.split(QUOTE)[::2]
    plain = [re.sub(r"[^\s,:{}\[\]]+", lambda word: f'"{word[0]}"', part) for part in parts]
    text = plain[0] + "".join(f'"{string}"{part}' for string, part in zip(strings, plain[1:], strict=True))
    return "{" + text


@pytest.mark.parametrize(
    ("text", "length"), [("abc", 0), ("abc<", 1), ("<ca", 3), ("<call>", 0), ("Here", 4), ("x <call", 5), ("", 0)]
)
def test_the_beginning_of_a_marker_is_held_back(text: str, length: int) -> None:
    assert held_back(text, ("<call>", "Here is")) == length


class Phrases:
    """A native reasoning parser that looks for phrases, but only whole ones in one piece."""

    valid_think_starts = ("Think:",)
    valid_response_starts = ("Say:",)

    def __init__(self) -> None:
        self._thinks = False

    def is_reasoning_end(self, token_ids: list[int]) -> bool:
        return False

    def is_reasoning_end_streaming(self, token_ids: list[int], delta_ids: list[int]) -> bool:
        return False

    def adjust_initial_state_from_prompt(self, token_ids: list[int]) -> None: ...

    def extract_reasoning_streaming(self, before: str, after: str, text: str, *token_ids: list[int]) -> Any:
        if text in ("Think:", "Say:"):
            self._thinks = text == "Think:"
            return None
        key, other = ("reasoning", "content") if self._thinks else ("content", "reasoning")
        return SimpleNamespace(**{key: text, other: None})


def test_phrases_come_whole_to_the_native_parser() -> None:
    reader = NativeReasoning(Phrases(), ())
    parts = [reader.feed(character, 1) for character in "Think: So thin Say: Th"]
    parts.append(reader.finish())
    assert "".join(part.reasoning for part in parts) == " So thin "
    assert "".join(part.content for part in parts) == " Th"


class WholeText:
    """A native reasoning parser with the regular expressions of Hunyuan's."""

    full = re.compile(r"(?:<think>\n(.*?)\n</think>\n<answer>\n)?(.*?)\n</answer>", re.DOTALL)

    def extract_reasoning(self, text: str, request: Any) -> tuple[str | None, str | None]:
        found = self.full.findall(text)
        return (found[0][0] or None, found[0][1] or None) if found else (None, text)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nTwo.\n\nFour.\n</think>\n<answer>\n<call>\n4\n</answer>", "Two.\n\nFour.", "<call>\n4"),
        ("<think>\n\n</think>\n<answer>\n4\n</answer>", "", "4"),
        ("<think>\nI am thin", "I am thin", ""),
        ("4 is\n<b>4</b>", "", "4 is\n<b>4</b>"),
        ("4 is\n</answ", "", "4 is\n</answ"),
    ],
)
def test_reasoning_between_phrases(text: str, reasoning: str, content: str) -> None:
    for size in range(1, len(text) + 1):
        reader = WholeTextReasoning(WholeText())
        parts = [reader.feed(text[start : start + size], 1) for start in range(0, len(text), size)]
        parts.append(reader.finish())
        assert "".join(part.reasoning for part in parts) == reasoning, size
        assert "".join(part.content for part in parts) == content, size
