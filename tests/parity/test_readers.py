# SPDX-License-Identifier: MIT
"""The readers and what drives them, without vLLM: rules that hold for every family, and what happens on failure."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from chatdelta import ToolCallFragment
from vllm_engine.alignment import Aligner
from vllm_engine.calls import NamedArguments, RequiredCalls, Said, Sink
from vllm_engine.orchestrator import Orchestrator, Parts
from vllm_engine.reasoning import Part

NAMES = {"f", "g"}
END = 0


def new_sink(*, max_calls: int | None = None) -> Sink:
    return Sink(lambda name, index: f"id-{index}", max_calls=max_calls)


def read(text: str, cuts: Sequence[int] = (), *, cut: bool = False) -> tuple[str, list[tuple[str, str]]]:
    """(content, calls) of a required answer, fed in the pieces that `cuts` makes of it."""
    sink = new_sink()
    reader = RequiredCalls(sink, NAMES)
    for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True):
        reader.feed(text[start:end], None)
    reader.finish(cut=cut)
    sink.finish()
    delta = sink.take()
    return delta.content, list(joined(delta.tool_calls))


def joined(fragments: Sequence[ToolCallFragment]) -> Iterator[tuple[str, str]]:
    for index in range(max((fragment.index for fragment in fragments), default=-1) + 1):
        own = [fragment for fragment in fragments if fragment.index == index]
        yield own[0].name or "", "".join(fragment.arguments for fragment in own)


NO_CALLS = ["plain", "[1, 2, 3]", '[{"name": "nobody"}]', '[{"a": [1, {"b": 2}]}] x', "{not json"]
CALLS = {
    "a brace inside a string": ('[{"name": "f", "parameters": {"x": "a}]{b"}}]', [("f", '{"x": "a}]{b"}')]),
    "an escaped quote": ('[{"name": "f", "parameters": {"x": "\\"}"}}]', [("f", '{"x": "\\"}"}')]),
    "two calls": (
        '[{"name": "f", "parameters": {"n": 1}}, {"name": "g", "parameters": {}}]',
        [("f", '{"n": 1}'), ("g", "{}")],
    ),
    "arguments before the name": ('[{"parameters": {"n": 1}, "name": "f"}]', [("f", '{"n": 1}')]),
    "white space anywhere": (' [ { "name" : "f" ,\n"parameters" : {} } ]\n', [("f", "{}")]),
    "no arguments": ('[{"name": "g"}]', [("g", "{}")]),
}


@pytest.mark.parametrize("text", NO_CALLS)
def test_what_is_no_call_is_said_whole(text: str) -> None:
    assert read(text, range(1, len(text))) == (text, [])


@pytest.mark.parametrize("rule", CALLS)
def test_a_required_answer_is_its_calls(rule: str) -> None:
    text, calls = CALLS[rule]
    assert read(text, range(1, len(text))) == ("", calls)


@pytest.mark.parametrize("text", [*NO_CALLS, *(text for text, _ in CALLS.values())])
def test_pieces_change_nothing(text: str) -> None:
    seeded = random.Random(text)
    for cut in (False, True):
        whole = read(text, cut=cut)
        for _ in range(50):
            cuts = sorted(seeded.sample(range(1, len(text)), min(len(text) - 1, seeded.randint(0, 12))))
            assert read(text, cuts, cut=cut) == whole, cuts


def test_calls_have_dense_indices_unique_ids_and_arguments() -> None:
    sink = new_sink()
    for call_id in ("a", "a", None):
        sink.start("f", call_id)
        sink.end()
    fragments = sink.take().tool_calls
    assert [fragment.index for fragment in fragments if fragment.id] == [0, 1, 2]
    assert len({fragment.id for fragment in fragments if fragment.id}) == 3
    assert list(joined(fragments)) == [("f", "{}")] * 3


def test_one_call_at_most() -> None:
    sink = new_sink(max_calls=1)
    for number in "12":
        sink.start("f")
        sink.arguments(number)
        sink.end()
    assert list(joined(sink.take().tool_calls)) == [("f", "1")]


def test_a_cut_call_never_looks_whole() -> None:
    sink = new_sink()
    sink.start("f")
    sink.cut()
    assert list(joined(sink.take().tool_calls)) == [("f", "{")]
    assert not sink.called


def test_named_arguments_end_with_their_object() -> None:
    sink = new_sink()
    reader = NamedArguments(sink, "f")
    for character in '\n{"x": "}"}\n trailing':
        reader.feed(character, None)
    reader.finish(cut=False)
    assert list(joined(sink.take().tool_calls)) == [("f", '{"x": "}"}')]


def test_tokens_wait_for_their_text() -> None:
    texts = {1: "ab", 2: "", 3: "cde", 4: "fg"}
    aligner = Aligner(texts.__getitem__)
    given = [("", 1), ("ab", 2), ("c", 3), ("d", 4), ("e", None)]
    out = [pair for text, token in given for pair in aligner.feed(text, token, finished=token is None)]
    assert out == [("ab", 1), ("", 2), ("cde", 3)]  # token 4 was cut off by a stop string


class Raising:
    """A reader that says everything up to a point, holds the rest, and then raises."""

    def __init__(self, sink: Sink, fails_at: str) -> None:
        self._sink = sink
        self._fails_at = fails_at

    def feed(self, text: str, token_id: int | None) -> None:
        if self._fails_at in text:
            raise KeyError(text)
        if text != "held ":
            self._sink.text(text)

    def finish(self, *, cut: bool) -> None:
        raise ValueError("at the end")


def run(make: Callable[[Sink], Raising], texts: Sequence[str]) -> list[Said]:
    sink = new_sink()
    orchestrator = Orchestrator(Parts(sink, calls=make(sink)), end_token_ids={END}, request_id="r-1")
    last = len(texts) - 1
    return [
        orchestrator.feed(text, END if at == last else at + 1, finished=at == last) for at, text in enumerate(texts)
    ]


@pytest.mark.parametrize("fails_at", ["bang", "last", "never"])
def test_after_a_failure_plain_text_goes_on_from_the_exact_point(
    fails_at: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["one ", "held ", "bang ", "more ", "last"]
    with caplog.at_level(logging.ERROR):
        deltas = run(lambda sink: Raising(sink, fails_at), texts)
    content = "".join(delta.content for delta in deltas)
    if fails_at == "bang":
        assert content == "".join(texts)
    else:
        assert content.replace("held ", "") == "one bang more last"
    assert [delta.parser_failure for delta in deltas if delta.parser_failure] in (["KeyError"], ["ValueError"])
    assert [getattr(record, "request_id", None) for record in caplog.records] == ["r-1"]


class UntilTag:
    """Reasoning up to the text `</t>`."""

    ended = False

    def feed(self, text: str, token_id: int | None) -> Part:
        self.ended = text == "</t>"
        return Part() if self.ended else Part(reasoning=text)

    def finish(self) -> Part:
        return Part()


@pytest.mark.parametrize("holds_back", [False, True], ids=["text with its token", "text later than its token"])
def test_reasoning_tokens_are_those_before_the_tag(*, holds_back: bool) -> None:
    texts = {1: "a ", 2: "b ", 3: "c", 4: "</t>", 5: "d ", END: ""}
    aligner = Aligner(texts.__getitem__) if holds_back else None
    parts = Parts(new_sink(), reasoning=UntilTag(), aligner=aligner)
    orchestrator = Orchestrator(parts, end_token_ids={END}, request_id="r-1")
    given = [("", 1), ("", 2), ("a b c", 3), ("</t>", 4), ("d ", 5), ("", END)] if holds_back else None
    counts, said = [], ""
    for text, token in given or [(text, token) for token, text in texts.items()]:
        said += orchestrator.feed(text, token, finished=token == END).reasoning
        counts.append(orchestrator.reasoning_tokens)
    assert said == "a b c"
    assert counts[-1] == 3


class Lagging:
    """A reader that says the arguments of a call one piece late, and then raises."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._held = ""

    def feed(self, text: str, token_id: int | None) -> None:
        if text == "bang":
            raise KeyError(text)
        if not self._held:
            self._sink.start("f")
        self._sink.arguments(self._held.removeprefix("f:"))
        self._held = text

    def finish(self, *, cut: bool) -> None: ...


def test_arguments_that_were_held_back_follow_as_text() -> None:
    sink = new_sink()
    orchestrator = Orchestrator(Parts(sink, calls=Lagging(sink)), end_token_ids={END}, request_id="r-1")
    deltas = [orchestrator.feed(text, at, finished=False) for at, text in enumerate(["f:{", '"x": ', "1", "bang", "!"])]
    assert list(joined([call for delta in deltas for call in delta.tool_calls])) == [("f", '{"x": ')]
    assert "".join(delta.content for delta in deltas) == "1bang!"
