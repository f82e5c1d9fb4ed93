# SPDX-License-Identifier: MIT
"""The history: what stays, what is forgotten, and whose turn it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vllm_nnrp.client.conversation import Answer, Conversation, Sampling, ToolsFileError, load_tools
from vllm_nnrp.client.events import (
    Cancelled,
    ClientEvent,
    Done,
    Error,
    Reasoning,
    Text,
    ToolCallDone,
    ToolCallError,
    Usage,
)

CALLS = [ToolCallDone(0, "c0", "f", '{"a": 1}'), ToolCallDone(1, "c1", "g", "{}")]
STOP, CALLED = Done("stop"), Done("tool_calls")


def answer(*events: ClientEvent) -> Answer:
    collected = Answer()
    for event in events:
        collected.feed(event)
    return collected


def roles(conversation: Conversation) -> list[str]:
    return [message["role"] for message in conversation.question().messages]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([Text("a"), Text("b"), Usage(1, 2), STOP], ["user", "assistant"], id="a whole answer stays"),
        pytest.param([STOP], ["user", "assistant"], id="an empty answer is an answer"),
        pytest.param([Text("a"), Cancelled("x")], ["user", "assistant"], id="a cancelled answer stays"),
        pytest.param([Cancelled("x")], [], id="a cancelled answer without text never was"),
        pytest.param([Reasoning("a"), Cancelled("x")], [], id="reasoning is no text"),
        pytest.param([Text("a"), Error("c", "m")], [], id="a failed answer never was, nor its question"),
        pytest.param([], [], id="nor does a stream without an ending count"),
    ],
)
def test_what_stays_of_a_turn(events: list[ClientEvent], expected: list[str]) -> None:
    conversation = Conversation()
    conversation.say("hello")
    conversation.answered(answer(*events))
    assert roles(conversation) == expected


def test_a_failed_turn_leaves_the_earlier_ones() -> None:
    conversation = Conversation(system="be kind")
    conversation.say("one")
    conversation.answered(answer(Text("1"), STOP))
    conversation.say("two")
    conversation.answered(answer(Error("c", "m")))
    assert [message["content"] for message in conversation.question().messages] == ["be kind", "one", "1"]


def test_each_call_waits_for_its_result() -> None:
    conversation = Conversation()
    conversation.say("hello")
    conversation.answered(answer(*CALLS, CALLED))
    assert conversation.open_call == CALLS[0]
    conversation.give_result("r0")
    assert conversation.open_call == CALLS[1]
    conversation.give_result("r1")
    assert conversation.open_call is None
    assert roles(conversation) == ["user", "assistant", "tool", "tool"]
    assert [m.get("tool_call_id") for m in conversation.question().messages] == [None, None, "c0", "c1"]


def test_a_failure_after_tool_results_forgets_the_whole_turn() -> None:
    conversation = Conversation()
    conversation.say("hello")
    conversation.answered(answer(CALLS[1], CALLED))
    conversation.give_result("r1")
    conversation.answered(answer(Error("c", "m")))
    assert roles(conversation) == []


def test_clear_keeps_the_system_prompt() -> None:
    conversation = Conversation(system="be kind")
    conversation.say("hello")
    conversation.answered(answer(*CALLS, CALLED))
    conversation.clear()
    assert conversation.open_call is None
    assert roles(conversation) == ["system"]


def test_the_message_of_an_answer_has_its_calls_and_no_reasoning() -> None:
    collected = answer(Reasoning("hm"), CALLS[0], ToolCallError(1, "c1", "length", "cut"), CALLED)
    assert collected.message() == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
    }


def test_the_body_says_only_what_was_chosen() -> None:
    conversation = Conversation(model="m")
    conversation.say("hello")
    assert conversation.question().openai_body() == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_body_has_the_sampling_and_the_tools() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    conversation = Conversation(model="m", tools=[tool], sampling=Sampling(0.5, 7, enable_thinking=False))
    body = conversation.question().openai_body()
    assert (body["temperature"], body["max_tokens"], body["tools"]) == (0.5, 7, [tool])
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_tools_file_is_an_array_of_functions(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"type": "function", "function": {"name": "f"}}]))
    assert load_tools(file)[0]["function"] == {"name": "f"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not JSON"),
        ("[" * 5000, "is not JSON"),
        ('{"type": "function"}', "must hold a JSON array"),
        ('[{"name": "f"}]', "tool 1 is not of the form"),
        ('[{"type": "function", "function": {"name": 3}}]', "tool 1 is not of the form"),
        (None, "cannot be read: No such file"),
    ],
)
def test_another_tools_file_is_refused_in_words(tmp_path: Path, content: str | None, complaint: str) -> None:
    file = tmp_path / "tools.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ToolsFileError, match=complaint):
        load_tools(file)
