# SPDX-License-Identifier: MIT
"""Thinking and tool choice on the real engine, through both doors. The expectations are written by hand.

Everything the model says is in memorised_corpus.py; a line break beside a tag is a token of the answer like any other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import grpc
import pytest

from tests.real_engine.asking import over_grpc, over_nnrp
from tests.real_engine.backend import MODEL, RealBackend
from tests.real_engine.clients import predict_options
from tests.real_engine.test_answers import BY_NAME
from tests.vllm_nnrp.doors import status_of

pytestmark = pytest.mark.asyncio(loop_scope="session")
CAPITAL, QUIET_CAPITAL = BY_NAME["capital"], BY_NAME["capital_no_thinking"]
WEATHER_CALL, TWO_CALLS, LOOKUP = BY_NAME["weather_call"], BY_NAME["two_calls"], BY_NAME["lookup_call"]
PARIS = "The capital of France is Paris."
THOUGHT = "\nThis is about geography. Paris is the capital.\n"

# Values that a grammar can hold a model to.
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Tokyo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
LEVEL = {
    "type": "object",
    "properties": {"level": {"type": "string", "enum": ["low", "high"]}},
    "required": ["level"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "set_level", "parameters": LEVEL}},
]
NAMED = {"type": "function", "function": {"name": "set_level"}}


def is_valid(name: str, arguments: Any) -> bool:
    if name == "get_weather":
        return arguments in ({"city": "Oslo"}, {"city": "Tokyo"})
    return name == "set_level" and arguments in ({"level": "low"}, {"level": "high"})


# Thinking

ON: list[tuple[str, dict[str, str]]] = [
    ("enable_thinking", {"enable_thinking": "true"}),
    ("an effort", {"reasoning_effort": "low"}),
    ("the blob", {"chat_template_kwargs": '{"enable_thinking": true}'}),
]
OFF: list[tuple[str, dict[str, str]]] = [
    ("enable_thinking", {"enable_thinking": "false"}),
    ("no effort", {"reasoning_effort": "none"}),
    ("the blob", {"chat_template_kwargs": '{"enable_thinking": false}'}),
    ("no effort against the blob", {"reasoning_effort": "none", "chat_template_kwargs": '{"enable_thinking": true}'}),
    ("no effort against the switch", {"reasoning_effort": "none", "enable_thinking": "true"}),
    ("the switch against an effort", {"reasoning_effort": "high", "enable_thinking": "false"}),
    ("DeepSeek's name for it", {"chat_template_kwargs": '{"thinking": false}'}),
]


@pytest.mark.parametrize("metadata", [row[1] for row in ON], ids=[row[0] for row in ON])
async def test_thinking_on_over_grpc(backend: RealBackend, metadata: dict[str, str]) -> None:
    answer = await over_grpc(backend, CAPITAL, Metadata=metadata)
    assert (answer.reasoning, answer.text) == (THOUGHT, f"\n\n{PARIS}")


@pytest.mark.parametrize("metadata", [row[1] for row in OFF], ids=[row[0] for row in OFF])
async def test_thinking_off_over_grpc(backend: RealBackend, metadata: dict[str, str]) -> None:
    answer = await over_grpc(backend, CAPITAL, Metadata=metadata)
    assert (answer.reasoning, answer.text, answer.message) == ("", PARIS, PARIS)


@pytest.mark.parametrize(
    "body",
    [{"chat_template_kwargs": {"enable_thinking": True}}, {"reasoning_effort": "high"}],
    ids=["kwargs", "effort"],
)
async def test_thinking_on_over_nnrp(backend: RealBackend, body: dict[str, Any]) -> None:
    answer = await over_nnrp(backend, CAPITAL, **body)
    assert (answer.reasoning(), answer.text()) == (THOUGHT, f"\n\n{PARIS}")
    assert answer.choice["message"]["reasoning"] == THOUGHT
    # The two tags are not counted as reasoning alone: at least the text's tokens are.
    assert answer.terminal["body"]["usage"]["completion_tokens_details"]["reasoning_tokens"] > 5


@pytest.mark.parametrize(
    "body",
    [
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"thinking": False}},
        {"reasoning_effort": "none"},
        {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
        {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}},
    ],
    ids=["kwargs", "DeepSeek's name", "no effort", "no effort against kwargs", "kwargs against an effort"],
)
async def test_thinking_off_over_nnrp(backend: RealBackend, body: dict[str, Any]) -> None:
    answer = await over_nnrp(backend, CAPITAL, **body)
    assert (answer.reasoning(), answer.text()) == ("", PARIS)
    assert answer.choice["message"] == {"role": "assistant", "content": PARIS}


async def test_reasoning_can_be_kept_back(backend: RealBackend) -> None:
    shown = await over_nnrp(backend, CAPITAL)
    hidden = await over_nnrp(backend, CAPITAL, include_reasoning=False)
    assert not hidden.of("reasoning_text.delta")
    assert "reasoning" not in hidden.choice["message"]
    assert hidden.text() == f"\n\n{PARIS}"
    assert hidden.terminal["body"]["usage"]["completion_tokens"] == shown.terminal["body"]["usage"]["completion_tokens"]


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_hidden_reasoning_does_not_swallow_a_call(backend: RealBackend, choice: str) -> None:
    answer = await over_nnrp(backend, WEATHER_CALL, include_reasoning=False, tool_choice=choice)
    assert not answer.of("reasoning_text.delta")
    assert answer.calls() == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("name", ["tools", "messages", "tokenize", "chat_template", "add_generation_prompt"])
async def test_reserved_template_kwargs(backend: RealBackend, name: str) -> None:
    """NNRP refuses them by name; over gRPC, where core merges a client's metadata in, they are dropped."""
    refused = await over_nnrp(backend, CAPITAL, chat_template_kwargs={name: "x"})
    assert refused.terminal["error"]["param"] == f"chat_template_kwargs.{name}"
    answer = await over_grpc(backend, CAPITAL, Metadata={"chat_template_kwargs": json.dumps({name: "x"})})
    assert answer.text == f"\n\n{PARIS}"


async def test_a_template_of_the_clients_own_is_refused(backend: RealBackend) -> None:
    answer = await over_nnrp(backend, CAPITAL, chat_template="{{ 7 * 7 }}")
    assert answer.types == ["response.error"]
    error = answer.terminal["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", "chat_template")


# Calls of the past


# arguments as a client has them: what the template gets to write
HISTORY = {'{"city": "P': '{"city": "P', "Paris": "Paris", '"Paris"': "Paris", "": "{}", '{"a":1}': '{"a": 1}'}


@pytest.mark.parametrize("arguments", HISTORY)
async def test_a_call_that_was_cut_can_be_in_the_history(backend: RealBackend, arguments: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    messages = (
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "What is the capital of France?"},
    )
    asked = replace(QUIET_CAPITAL, messages=messages)
    counted = await backend.stub.TokenizeString(predict_options(asked))
    tokenizer = backend.host.engine().llm.get_tokenizer()  # type: ignore[attr-defined]
    prompt = tokenizer.decode(list(counted.tokens))
    assert f'{{"name": "get_weather", "arguments": {HISTORY[arguments]}}}\n</tool_call>' in prompt
    answer = await over_nnrp(backend, asked, max_tokens=5)
    assert answer.terminal["body"]["usage"]["prompt_tokens"] == counted.length


# Tool choice


async def test_none_gives_no_call_over_grpc(backend: RealBackend) -> None:
    answer = await over_grpc(backend, WEATHER_CALL, ToolChoice='"none"')
    assert not answer.calls_by_index
    assert answer.text.strip()
    assert answer.message == answer.text


async def test_none_gives_no_call_over_nnrp(backend: RealBackend) -> None:
    answer = await over_nnrp(backend, WEATHER_CALL, tool_choice="none")
    assert not [kind for kind in answer.types if "tool_call" in kind]
    assert answer.choice["finish_reason"] == "stop"
    assert "tool_calls" not in answer.choice["message"]
    assert answer.text().strip()


async def test_required_is_a_valid_call_over_nnrp(backend: RealBackend) -> None:
    """Of a question that no tool fits."""
    answer = await over_nnrp(backend, QUIET_CAPITAL, tools=TOOLS, tool_choice="required", max_tokens=400)
    calls = answer.calls()
    assert calls
    assert all(is_valid(*call) for call in calls), calls
    assert "<tool_call>" not in answer.text()
    assert answer.choice["finish_reason"] == ("length" if answer.of("tool_call.error") else "tool_calls")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
async def test_a_forced_call_comes_after_the_reasoning(backend: RealBackend, choice: Any) -> None:
    answer = await over_nnrp(backend, WEATHER_CALL, tool_choice=choice)
    assert answer.reasoning() == "\nI need the weather of one city.\n"
    assert answer.calls() == [("get_weather", {"city": "Paris"})]
    # OpenAI's rule: who named the tool is told "stop", as vLLM's own server does.
    assert answer.choice["finish_reason"] == ("tool_calls" if choice == "required" else "stop")


@pytest.mark.parametrize("choice", ['"required"', "required", '{"type":"any"}'])
async def test_required_is_a_valid_call_over_grpc(backend: RealBackend, choice: str) -> None:
    answer = await over_grpc(backend, QUIET_CAPITAL, Tools=json.dumps(TOOLS), ToolChoice=choice, Tokens=400)
    calls = completed(answer.calls_by_index.values())
    assert calls
    assert all(is_valid(*call) for call in calls), calls
    assert answer.message == ""


async def test_named_is_a_call_of_that_tool_over_nnrp(backend: RealBackend) -> None:
    answer = await over_nnrp(backend, QUIET_CAPITAL, tools=TOOLS, tool_choice=NAMED, max_tokens=400)
    calls = answer.calls()
    assert calls
    assert all(name == "set_level" and is_valid(name, arguments) for name, arguments in calls), calls


@pytest.mark.parametrize(
    "choice", [json.dumps(NAMED), '{"type":"function","name":"set_level"}', '{"type":"tool","name":"set_level"}']
)
async def test_named_is_a_call_of_that_tool_over_grpc(backend: RealBackend, choice: str) -> None:
    answer = await over_grpc(backend, QUIET_CAPITAL, Tools=json.dumps(TOOLS), ToolChoice=choice, Tokens=400)
    calls = completed(answer.calls_by_index.values())
    assert calls
    assert all(name == "set_level" and is_valid(name, arguments) for name, arguments in calls), calls


def completed(calls: Any) -> list[tuple[str, Any]]:
    """Core gets no word that a call was cut: what does not decode is one, and only the last can be."""
    found: list[tuple[str, Any]] = []
    for position, (_, name, arguments) in enumerate(calls):
        try:
            found.append((name, json.loads(arguments)))
        except ValueError:
            assert position == len(calls) - 1, arguments
    return found


@pytest.mark.parametrize(
    ("choice", "tools"), [(NAMED, None), ({"type": "function", "function": {"name": "unknown"}}, TOOLS)]
)
async def test_a_choice_that_cannot_be_is_refused(
    backend: RealBackend, choice: dict[str, Any], tools: Sequence[Any] | None
) -> None:
    body = {"tools": tools} if tools else {}
    answer = await over_nnrp(backend, QUIET_CAPITAL, tool_choice=choice, **body)
    assert answer.types == ["response.error"]
    assert (answer.terminal["error"]["type"], answer.terminal["error"]["param"]) == (
        "invalid_request_error",
        "tool_choice",
    )


async def test_strict_tools_bring_a_grammar_that_does_not_hinder_the_native_calls(backend: RealBackend) -> None:
    """LocalAI sends a grammar of bare JSON beside tools with `strict`: it would forbid the model's own markup."""
    tools = [{"type": "function", "function": {**WEATHER_CALL.tools[0]["function"], "strict": True}}]
    answer = await over_grpc(backend, WEATHER_CALL, Tools=json.dumps(tools), Grammar='root ::= "{" [a-z]* "}"')
    assert answer.calls() == [("get_weather", {"city": "Paris"})]


async def test_two_calls_have_dense_indices_and_their_own_ids(backend: RealBackend) -> None:
    cities = [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Tokyo"})]
    over_first = await over_grpc(backend, TWO_CALLS)
    assert over_first.calls() == cities
    assert len({call_id for call_id, _, _ in over_first.calls_by_index.values()} - {""}) == 2
    over_second = await over_nnrp(backend, TWO_CALLS)
    assert over_second.calls() == cities
    assert [event["index"] for event in over_second.of("tool_call.started")] == [0, 1]
    assert len({event["call_id"] for event in over_second.of("tool_call.started")}) == 2
    assert over_second.choice["finish_reason"] == "tool_calls"


async def test_one_call_at_most_where_parallel_calls_are_switched_off(backend: RealBackend) -> None:
    answer = await over_nnrp(backend, TWO_CALLS, parallel_tool_calls=False)
    assert answer.calls() == [("get_weather", {"city": "Oslo"})]


async def test_a_call_without_arguments_has_an_empty_object(backend: RealBackend) -> None:
    answer = await over_grpc(backend, LOOKUP)
    assert [arguments for _, _, arguments in answer.calls_by_index.values()] == ["{}"]


async def test_with_tools_the_message_stays_empty(backend: RealBackend) -> None:
    """Or core finds calls of its own in it: a person's record has a `name` as well."""
    for conversation in (BY_NAME["text_before_call"], BY_NAME["hello_with_tools_offered"]):
        answer = await over_grpc(backend, conversation)
        assert answer.message == ""
        assert answer.text.strip() == conversation.content


async def test_without_tools_json_with_a_name_is_only_text(backend: RealBackend) -> None:
    answer = await over_grpc(backend, BY_NAME["json_name"])
    assert json.loads(answer.message) == {"name": "Ada Lovelace", "born": 1815}
    assert not answer.calls_by_index


async def test_a_refused_request_over_grpc_is_a_status(backend: RealBackend) -> None:
    call = over_grpc(backend, CAPITAL, Tools=json.dumps(TOOLS), ToolChoice='{"type":"tool","name":"unknown"}')
    code, text = await status_of(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "tool_choice" in text
    assert MODEL in backend.host.engine().info.model_names  # and the engine is there
