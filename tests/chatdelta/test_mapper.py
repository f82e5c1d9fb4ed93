# SPDX-License-Identifier: MIT
"""The mapper's rules, one row each: engine deltas in, events out."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from chatdelta import (
    BackendFailure,
    Cancelled,
    Completed,
    EngineDead,
    EngineDelta,
    Event,
    Failed,
    FinishReason,
    LogprobsDelta,
    ReasoningDelta,
    ResponseHead,
    StreamMapper,
    TextDelta,
    TokenLogprob,
    ToolCallCompleted,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallFragment,
    ToolCallStarted,
    Usage,
    UsageReport,
)

LOGPROB = TokenLogprob(4, "a", b"a", -0.5)
STOP, LENGTH, CALLS = FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS


def mapper(n: int = 1) -> StreamMapper:
    return StreamMapper(ResponseHead("r1", 1700000000, "m"), n=n)


def text(content: str, count: int, finish: FinishReason | None = None, *, choice: int = 0) -> EngineDelta:
    return EngineDelta(choice, content=content, prompt_tokens=7, completion_tokens=count, finish_reason=finish)


def call(index: int, arguments: str = "", *, id: str | None = None, name: str | None = None) -> EngineDelta:
    return EngineDelta(tool_calls=(ToolCallFragment(index, id, name, arguments),), completion_tokens=1)


def end(finish: FinishReason) -> EngineDelta:
    return EngineDelta(prompt_tokens=7, completion_tokens=9, finish_reason=finish)


def started(index: int, call_id: str, name: str) -> ToolCallStarted:
    return ToolCallStarted(0, index, f"item-r1-0-{index}", call_id, name)


def delta(index: int, call_id: str, arguments: str) -> ToolCallDelta:
    return ToolCallDelta(0, index, f"item-r1-0-{index}", call_id, arguments)


def completed(index: int, call_id: str, name: str, arguments: str) -> ToolCallCompleted:
    return ToolCallCompleted(0, index, f"item-r1-0-{index}", call_id, name, arguments)


ROWS: dict[str, tuple[list[EngineDelta], list[Event]]] = {
    "each text is one event, in order": (
        [text("Hel", 1), text("lo", 2, STOP)],
        [TextDelta(0, "Hel"), TextDelta(0, "lo")],
    ),
    "a delta without text gives no event": ([EngineDelta(completion_tokens=1), end(STOP)], []),
    "log-probabilities come of every token, markup and reasoning included": (
        [
            EngineDelta(reasoning="so", logprobs=(LOGPROB,), completion_tokens=1),
            EngineDelta(logprobs=(LOGPROB,), completion_tokens=2),
            EngineDelta(content="A", logprobs=(LOGPROB,), completion_tokens=3, finish_reason=STOP),
        ],
        [
            ReasoningDelta(0, "so"),
            LogprobsDelta(0, (LOGPROB,)),
            LogprobsDelta(0, (LOGPROB,)),
            TextDelta(0, "A"),
            LogprobsDelta(0, (LOGPROB,)),
        ],
    ),
    "reasoning comes before text of the same delta": (
        [EngineDelta(reasoning="so", content="A", completion_tokens=1), end(STOP)],
        [ReasoningDelta(0, "so"), TextDelta(0, "A")],
    ),
    "a call is started once, streamed, completed at the end": (
        [call(0, id="a", name="f"), call(0, '{"x"'), call(0, ": 1}"), end(CALLS)],
        [started(0, "a", "f"), delta(0, "a", '{"x"'), delta(0, "a", ": 1}"), completed(0, "a", "f", '{"x": 1}')],
    ),
    "first arguments may come with the start": (
        [call(0, '{"x": 1}', id="a", name="f"), end(CALLS)],
        [started(0, "a", "f"), delta(0, "a", '{"x": 1}'), completed(0, "a", "f", '{"x": 1}')],
    ),
    "a second call completes the first": (
        [call(0, "{}", id="a", name="f"), call(1, "{}", id="b", name="g"), end(CALLS)],
        [
            started(0, "a", "f"),
            delta(0, "a", "{}"),
            completed(0, "a", "f", "{}"),
            started(1, "b", "g"),
            delta(1, "b", "{}"),
            completed(1, "b", "g", "{}"),
        ],
    ),
    "a call without arguments sends an empty object": (
        [call(0, id="a", name="f"), end(CALLS)],
        [started(0, "a", "f"), delta(0, "a", "{}"), completed(0, "a", "f", "{}")],
    ),
    "a call cut by the token limit fails": (
        [call(0, '{"x": "un', id="a", name="f"), end(LENGTH)],
        [
            started(0, "a", "f"),
            delta(0, "a", '{"x": "un'),
            ToolCallFailed(
                0,
                0,
                "item-r1-0-0",
                "a",
                BackendFailure("the token limit cut this tool call (finish_reason length)", code="length").info(),
            ),
        ],
    ),
    "a call cut before its arguments fails too": (
        [call(0, id="a", name="f"), end(LENGTH)],
        [
            started(0, "a", "f"),
            ToolCallFailed(
                0,
                0,
                "item-r1-0-0",
                "a",
                BackendFailure("the token limit cut this tool call (finish_reason length)", code="length").info(),
            ),
        ],
    ),
    "a call whole at the token limit is completed": (
        [call(0, '{"x": 1}', id="a", name="f"), end(LENGTH)],
        [started(0, "a", "f"), delta(0, "a", '{"x": 1}'), completed(0, "a", "f", '{"x": 1}')],
    ),
    "arguments that are no object fail the call": (
        [call(0, "[1]", id="a", name="f"), end(STOP)],
        [
            started(0, "a", "f"),
            delta(0, "a", "[1]"),
            ToolCallFailed(
                0,
                0,
                "item-r1-0-0",
                "a",
                BackendFailure(
                    "the arguments of this tool call are not a JSON object", code="invalid_arguments"
                ).info(),
            ),
        ],
    ),
}


@pytest.mark.parametrize("rule", ROWS)
def test_events_of_a_finished_stream(rule: str) -> None:
    deltas, expected = ROWS[rule]
    subject = mapper()
    events: list[Event] = [event for item in deltas for event in subject.feed(item)]
    assert events == expected
    *usage, terminal = subject.complete()
    assert [type(event) for event in usage] == [UsageReport]
    assert isinstance(terminal, Completed)
    assert subject.done


def test_the_body_is_the_stream_joined() -> None:
    subject = mapper()
    subject.feed(EngineDelta(reasoning="why ", prompt_tokens=7, completion_tokens=1, reasoning_tokens=1))
    subject.feed(EngineDelta(reasoning="not", prompt_tokens=7, completion_tokens=2, reasoning_tokens=2))
    subject.feed(EngineDelta(content="Let me ", prompt_tokens=7, completion_tokens=3, cached_tokens=4))
    subject.feed(EngineDelta(content="look.", prompt_tokens=7, completion_tokens=4))
    subject.feed(call(0, '{"q": 1}', id="call-a", name="lookup"))
    subject.feed(EngineDelta(prompt_tokens=7, completion_tokens=9, finish_reason=CALLS, stop_reason=5))
    terminal = subject.complete()[-1]
    assert isinstance(terminal, Completed)
    assert terminal.body == {
        "id": "r1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Let me look.",
                    "reasoning": "why not",
                    "tool_calls": [
                        {
                            "id": "call-a",
                            "type": "function",
                            "function": {"name": "lookup", "arguments": '{"q": 1}'},
                        }
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
                "stop_reason": 5,
            }
        ],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 9,
            "total_tokens": 16,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    }
    json.dumps(terminal.body)


def test_content_is_null_only_beside_tool_calls() -> None:
    subject = mapper()
    subject.feed(end(STOP))
    terminal = subject.complete()[-1]
    assert isinstance(terminal, Completed)
    assert terminal.body["choices"][0]["message"] == {"role": "assistant", "content": ""}


def test_logprobs_are_collected_per_token() -> None:
    subject = mapper()
    top = TokenLogprob(5, "b", b"b", -2.0)
    entry = TokenLogprob(4, "a", b"a", -0.5, (TokenLogprob(4, "a", b"a", -0.5), top))
    subject.feed(EngineDelta(content="a", logprobs=(entry,), completion_tokens=1, finish_reason=STOP))
    assert list(subject.logprobs()) == [entry]
    terminal = subject.complete()[-1]
    assert isinstance(terminal, Completed)
    assert terminal.body["choices"][0]["logprobs"] == {
        "content": [
            {
                "token": "a",
                "logprob": -0.5,
                "bytes": [97],
                "top_logprobs": [
                    {"token": "a", "logprob": -0.5, "bytes": [97]},
                    {"token": "b", "logprob": -2.0, "bytes": [98]},
                ],
            }
        ]
    }


def test_usage_sums_choices_and_counts_the_prompt_once() -> None:
    subject = mapper(n=2)
    subject.feed(text("a", 1, choice=0))
    assert subject.usage == Usage(7, 1)
    subject.feed(text("b", 3, STOP, choice=1))
    subject.feed(text("", 2, STOP, choice=0))
    assert subject.usage == Usage(7, 5)
    assert isinstance(subject.complete()[-1], Completed)


TERMINALS: dict[str, tuple[list[EngineDelta], type[Event]]] = {
    "every choice finished": ([end(STOP)], Completed),
    "no finish reason": ([text("a", 1)], Failed),
    "nothing at all": ([], Failed),
    "the engine failed the choice": ([end(FinishReason.ERROR)], Failed),
    "the engine aborted the choice": ([end(FinishReason.ABORT)], Cancelled),
}


@pytest.mark.parametrize("ending", TERMINALS)
def test_the_end_of_the_engines_stream(ending: str) -> None:
    deltas, expected = TERMINALS[ending]
    subject = mapper()
    for item in deltas:
        subject.feed(item)
    assert type(subject.complete()[-1]) is expected


@pytest.mark.parametrize("ending", ["fail", "cancel"])
def test_an_open_call_is_failed_before_the_terminal(ending: str) -> None:
    subject = mapper()
    subject.feed(call(0, '{"x', id="a", name="f"))
    events = subject.fail(EngineDead("the engine has died")) if ending == "fail" else subject.cancel("user")
    assert [type(event) for event in events] == [ToolCallFailed, Failed if ending == "fail" else Cancelled]


@pytest.mark.parametrize("again", ["feed", "complete", "fail", "cancel"])
@pytest.mark.parametrize("first", ["complete", "fail", "cancel"])
def test_nothing_follows_the_terminal(first: str, again: str) -> None:
    subject = mapper()
    subject.feed(end(STOP))
    calls: dict[str, Callable[[], object]] = {
        "feed": lambda: subject.feed(EngineDelta(content="late")),
        "complete": subject.complete,
        "fail": lambda: subject.fail(BackendFailure("x")),
        "cancel": lambda: subject.cancel("x"),
    }
    calls[first]()
    with pytest.raises(RuntimeError):
        calls[again]()


@pytest.mark.parametrize(
    "fragments",
    [
        pytest.param([ToolCallFragment(0, None, "f")], id="no id"),
        pytest.param([ToolCallFragment(0, "a", None)], id="no name"),
        pytest.param([ToolCallFragment(1, "a", "f")], id="a gap"),
        pytest.param(
            [ToolCallFragment(0, "a", "f"), ToolCallFragment(1, "b", "f"), ToolCallFragment(0, arguments="{}")],
            id="back to an ended call",
        ),
    ],
)
def test_an_engine_that_breaks_the_order_of_calls_fails_the_request(fragments: list[ToolCallFragment]) -> None:
    with pytest.raises(BackendFailure):
        mapper().feed(EngineDelta(tool_calls=tuple(fragments)))


def test_a_delta_after_the_finish_reason_is_our_bug() -> None:
    subject = mapper(n=2)
    subject.feed(end(STOP))
    with pytest.raises(RuntimeError):
        subject.feed(text("late", 1))
