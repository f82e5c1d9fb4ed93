# SPDX-License-Identifier: MIT
"""PredictOptions to an OpenAI body: a row per field, and what each zero means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatdelta import RESERVED_TEMPLATE_KWARGS, ChatRequest, InvalidRequest, PromptRequest
from localai_proto import backend_pb2 as pb
from vllm_nnrp.grpc_door.decode import decode_predict, is_left_to_core, tools_active
from vllm_nnrp.grpc_door.decode_messages import decode_metadata
from vllm_nnrp.grpc_door.decode_tools import decode_tool_choice

# What a request without any sampling field says: all of it is meant, 0 is greedy.
ZERO = {
    "model": "m",
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "seed": 0,
}
TOOL = {"type": "function", "function": {"name": "f", "description": "", "strict": False, "parameters": None}}
TOOLS = json.dumps([TOOL])
DECODED_TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}},
}
NAMED = {"type": "function", "function": {"name": "f"}}
HELLO = {"role": "user", "content": "hello"}


def decode(tool_parser: bool = True, **fields: Any) -> Any:
    return decode_predict(pb.PredictOptions(**fields), request_id="r", model="m", tool_parser=tool_parser)


def chat_body(tool_parser: bool = True, **fields: Any) -> dict[str, Any]:
    """What a chat with `fields` says beyond a chat without any."""
    request = decode(tool_parser, Messages=[pb.Message(role="user", content="hello")], **fields)
    assert isinstance(request, ChatRequest)
    return {key: value for key, value in request.body.items() if ZERO.get(key, _NEVER) != value and key != "messages"}


_NEVER = object()


def test_an_empty_request_says_greedy_and_no_limit() -> None:
    request = decode(Messages=[pb.Message(role="user", content="hello")])
    assert request.body == {**ZERO, "messages": [HELLO]}
    assert request.policy.fills_context
    assert (request.request_id, request.origin.door) == ("r", "grpc")


SAMPLING: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "floats are the decimals that were meant",
        {"Temperature": 0.7, "TopP": 0.95},
        {"temperature": 0.7, "top_p": 0.95},
    ),
    ("top_p at or below zero is everything", {"TopP": -1.0}, {}),
    ("top_k", {"TopK": 40}, {"top_k": 40}),
    ("a negative top_k is off", {"TopK": -1}, {}),
    ("min_p", {"MinP": 0.05}, {"min_p": 0.05}),
    ("tokens", {"Tokens": 7}, {"max_tokens": 7}),
    ("tokens below zero are no limit", {"Tokens": -1}, {}),
    ("stop strings, a plain list without empty ones", {"StopPrompts": ["a", "", "b"]}, {"stop": ["a", "b"]}),
    ("only empty stop strings", {"StopPrompts": [""]}, {}),
    ("frequency penalty", {"FrequencyPenalty": -0.5}, {"frequency_penalty": -0.5}),
    ("presence penalty", {"PresencePenalty": 1.5}, {"presence_penalty": 1.5}),
    ("repetition penalty", {"Penalty": 1.1}, {"repetition_penalty": 1.1}),
    ("ignore eos", {"IgnoreEOS": True}, {"ignore_eos": True}),
    ("logit bias", {"LogitBias": '{"1":-100,"22":0.5}'}, {"logit_bias": {"1": -100, "22": 0.5}}),
    ("logprobs alone", {"Logprobs": 1}, {"logprobs": True, "top_logprobs": 1}),
    ("the larger of both", {"Logprobs": 1, "TopLogprobs": 5}, {"logprobs": True, "top_logprobs": 5}),
    ("negative logprobs are off", {"Logprobs": -1}, {}),
    ("a grammar", {"Grammar": "root ::= x"}, {"structured_outputs": {"grammar": "root ::= x"}}),
    ("a schema", {"Grammar": '{"type":"object"}'}, {"structured_outputs": {"json": {"type": "object"}}}),
    ("other engines' fields", {"Repeat": 64, "TypicalP": 1.0, "Mirostat": 2, "NKeep": 5, "Debug": True}, {}),
    ("our own label is not the client's", {"CorrelationId": "c"}, {}),
]


@pytest.mark.parametrize(("fields", "expected"), [row[1:] for row in SAMPLING], ids=[row[0] for row in SAMPLING])
def test_sampling(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert chat_body(**fields) == expected


def test_seed_minus_one_is_none() -> None:
    assert "seed" not in decode(Prompt="x", Seed=-1).body
    assert decode(Prompt="x", Seed=5).body["seed"] == 5


def test_the_correlation_id_is_a_label_of_bounded_printable_text() -> None:
    origin = decode(Prompt="x", CorrelationId="a\nb" + "c" * 500).origin
    assert origin.peer_request_id == "ab" + "c" * 125


def test_with_the_tokenizers_template_messages_win_over_a_prompt() -> None:
    """Core's Anthropic, Ollama and Responses endpoints send both; the prompt is the messages' bare texts."""
    request = decode(Prompt="x", Messages=[pb.Message(role="user", content="x")], UseTokenizerTemplate=True)
    assert isinstance(request, ChatRequest)
    assert request.body["messages"] == [{"role": "user", "content": "x"}]
    assert "prompt" not in request.body
    assert isinstance(decode(Prompt="x", UseTokenizerTemplate=True), PromptRequest)


def test_a_prompt_wins_over_messages_and_is_a_completion() -> None:
    request = decode(Prompt="raw", Messages=[pb.Message(role="user", content="x")], Logprobs=2, Tools=TOOLS)
    assert isinstance(request, PromptRequest)
    assert request.body == {**ZERO, "prompt": "raw", "logprobs": 2}


def test_token_ids_are_a_prompt_too() -> None:
    assert decode(EmbeddingTokens=[1, 2]).body["prompt"] == [1, 2]


STRICT = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}

TOOL_CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("strict is kept where it is true; Go's false says nothing", {"Tools": json.dumps([STRICT])}, {"tools": [STRICT]}),
    ("null parameters become an empty schema", {"Tools": TOOLS}, {"tools": [DECODED_TOOL]}),
    ("no tools at all", {"Tools": "null"}, {}),
    ("an empty array", {"Tools": "[]", "ToolChoice": '"auto"'}, {}),
    ("none keeps the tools", {"Tools": TOOLS, "ToolChoice": "none"}, {"tools": [DECODED_TOOL], "tool_choice": "none"}),
    (
        "a named tool without tools is left for vLLM to refuse",
        {"ToolChoice": json.dumps(NAMED)},
        {"tool_choice": NAMED},
    ),
    ("a grammar beside tools is not followed", {"Tools": TOOLS, "Grammar": "root ::= x"}, {"tools": [DECODED_TOOL]}),
]


@pytest.mark.parametrize(("fields", "expected"), [row[1:] for row in TOOL_CASES], ids=[row[0] for row in TOOL_CASES])
def test_tools(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert chat_body(**fields) == expected


def test_without_a_tool_parser_the_grammar_beside_tools_is_followed() -> None:
    assert chat_body(False, Tools=TOOLS, Grammar="g")["structured_outputs"] == {"grammar": "g"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("null", None),
        ('""', None),
        ("auto", "auto"),
        ('"auto"', "auto"),
        ("required", "required"),
        ('"none"', "none"),
        ('"\\"required\\""', "required"),
        (' "auto" ', "auto"),
        ("none", "none"),
        ("any", "required"),
        ('{"type":"function","function":{"name":"f"}}', NAMED),
        ('{"type":"function","name":"f"}', NAMED),
        ('{"function":{"name":"f"}}', NAMED),
        (json.dumps('{"type":"function","function":{"name":"f"}}'), NAMED),
        ('{"type":"auto"}', "auto"),
        ('{"type":"any"}', "required"),
        ('{"type":"none"}', "none"),
        ('{"type":"required"}', "required"),
        ('{"type":"tool","name":"f"}', NAMED),
        ('{"type":"tool","name":"f","disable_parallel_tool_use":true}', NAMED),
        ('{"name":"f"}', NAMED),
    ],
)
def test_tool_choice(text: str, expected: Any) -> None:
    assert decode_tool_choice(text) == expected


@pytest.mark.parametrize(
    ("fields", "tool_parser", "expected"),
    [
        ({"Tools": TOOLS}, True, True),
        ({"Tools": TOOLS, "ToolChoice": "required"}, True, True),
        ({"Tools": TOOLS, "ToolChoice": "none"}, True, False),
        ({"Tools": TOOLS}, False, False),
        ({}, True, False),
        ({"Tools": TOOLS, "Prompt": "raw"}, True, False),
    ],
)
def test_tools_active(fields: dict[str, Any], tool_parser: bool, expected: bool) -> None:
    request = decode(Messages=[pb.Message(role="user", content="x")], **fields)
    assert tools_active(request, tool_parser=tool_parser) is expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"Tools": TOOLS, "Prompt": "raw"}, True),
        ({"Tools": TOOLS, "Prompt": "raw", "ToolChoice": '"none"'}, False),
        ({"Tools": TOOLS}, False),
        ({"Prompt": "raw"}, False),
    ],
)
def test_what_is_left_to_core(fields: dict[str, Any], expected: bool) -> None:
    options = pb.PredictOptions(Messages=[pb.Message(role="user", content="x")], **fields)
    assert is_left_to_core(options, decode(Messages=options.Messages, **fields)) is expected


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}


MESSAGES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("plain", {"role": "user", "content": "x"}, {"role": "user", "content": "x"}),
    ("empty content stays", {"role": "user"}, {"role": "user", "content": ""}),
    (
        "a tool's result",
        {"role": "tool", "content": "42", "tool_call_id": "c1", "name": "f"},
        {"role": "tool", "content": "42", "tool_call_id": "c1", "name": "f"},
    ),
    (
        "reasoning of an old turn",
        {"role": "assistant", "content": "a", "reasoning_content": "r"},
        {"role": "assistant", "content": "a", "reasoning_content": "r"},
    ),
    (
        "calls of an old turn",
        {"role": "assistant", "tool_calls": json.dumps([{"index": 0, **call('{"a":1}')}])},
        {"role": "assistant", "content": None, "tool_calls": [call('{"a":1}')]},
    ),
    (
        "arguments of any kind, for the engine to make sense of",
        {"role": "assistant", "content": "t", "tool_calls": json.dumps([call({"a": 1}), call("a=1"), call(None)])},
        {"role": "assistant", "content": "t", "tool_calls": [call({"a": 1}), call("a=1"), call(None)]},
    ),
    (
        "several calls keep their order and their ids",
        {"role": "assistant", "tool_calls": json.dumps([call('{"a":1}'), {**call("{}"), "id": "c2"}])},
        {"role": "assistant", "content": None, "tool_calls": [call('{"a":1}'), {**call("{}"), "id": "c2"}]},
    ),
    (
        "arguments with braces and other scripts are not touched",
        {"role": "assistant", "tool_calls": json.dumps([call('{"a":"}{ 東京"}')])},
        {"role": "assistant", "content": None, "tool_calls": [call('{"a":"}{ 東京"}')]},
    ),
    ("a developer", {"role": "developer", "content": "d"}, {"role": "developer", "content": "d"}),
    ("a system prompt", {"role": "system", "content": "s"}, {"role": "system", "content": "s"}),
    ("a named user", {"role": "user", "content": "x", "name": "Zoë"}, {"role": "user", "content": "x", "name": "Zoë"}),
    ("no calls", {"role": "assistant", "content": "x", "tool_calls": "[]"}, {"role": "assistant", "content": "x"}),
    ("null calls", {"role": "assistant", "content": "x", "tool_calls": "null"}, {"role": "assistant", "content": "x"}),
]


@pytest.mark.parametrize(("message", "expected"), [row[1:] for row in MESSAGES], ids=[row[0] for row in MESSAGES])
def test_messages(message: dict[str, Any], expected: dict[str, Any]) -> None:
    assert decode(Messages=[pb.Message(**message)]).body["messages"] == [expected]


METADATA: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("nothing", {}, {}),
    ("unknown keys", {"mcp_servers": "x"}, {}),
    ("thinking on", {"enable_thinking": "true"}, {"chat_template_kwargs": {"enable_thinking": True}}),
    ("thinking off", {"enable_thinking": "false"}, {"chat_template_kwargs": {"enable_thinking": False}}),
    (
        "an effort of OpenAI's",
        {"reasoning_effort": "low"},
        {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "low"}},
    ),
    ("an effort of the template's own", {"reasoning_effort": "9"}, {"chat_template_kwargs": {"reasoning_effort": "9"}}),
    (
        "an explicit key wins over the blob",
        {"enable_thinking": "false", "chat_template_kwargs": '{"enable_thinking":true,"x":1}'},
        {"chat_template_kwargs": {"enable_thinking": False, "x": 1}},
    ),
    (
        "an explicit key wins over the blob's other name",
        {"enable_thinking": "false", "chat_template_kwargs": '{"thinking":true}'},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ),
    (
        "what wins is the engine's to say",
        {"reasoning_effort": "none", "enable_thinking": "true"},
        {
            "reasoning_effort": "none",
            "chat_template_kwargs": {"reasoning_effort": "none", "enable_thinking": True},
        },
    ),
    ("reserved keys", {"chat_template_kwargs": json.dumps(dict.fromkeys(RESERVED_TEMPLATE_KWARGS, 1))}, {}),
]


@pytest.mark.parametrize(("metadata", "expected"), [row[1:] for row in METADATA], ids=[row[0] for row in METADATA])
def test_metadata(metadata: dict[str, str], expected: dict[str, Any]) -> None:
    assert decode_metadata(metadata) == expected


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"LogitBias": "{"}, "LogitBias is not valid JSON"),
    ({"LogitBias": "[]"}, "LogitBias must be a JSON object"),
    ({"LogitBias": '{"x":1}'}, "LogitBias must map"),
    ({"LogitBias": '{"1":true}'}, "LogitBias must map"),
    ({"Temperature": float("nan")}, "Temperature must be a finite number"),
    ({"Penalty": float("inf")}, "Penalty must be a finite number"),
    ({"Grammar": "{"}, "Grammar is not valid JSON"),
    ({"Tools": "{}"}, "Tools must be a JSON array"),
    ({"Tools": "[1]"}, r"Tools\[0\]: a tool needs function.name"),
    ({"Tools": '[{"function":{"name":"f","parameters":[]}}]'}, "parameters must be an object"),
    ({"Tools": "[" * 100_000 + "]" * 100_000}, "Tools is nested deeper"),
    ({"Tools": "[" * 200 + "]" * 200}, "Tools is nested deeper"),
    ({"ToolChoice": "sometimes"}, "ToolChoice must be"),
    ({"ToolChoice": "[]"}, "ToolChoice must be"),
    ({"ToolChoice": "{}"}, "ToolChoice must be"),
    ({"ToolChoice": '{"type":"tool","name":1}'}, "ToolChoice must be"),
    ({"Metadata": {"chat_template_kwargs": "[]"}}, "Metadata.chat_template_kwargs must be a JSON object"),
    ({"Metadata": {"enable_thinking": "maybe"}}, "Metadata.enable_thinking must be"),
    ({"Messages": [pb.Message(content="x")]}, r"Messages\[0\].role is empty"),
    ({"Messages": [pb.Message(role="a", tool_calls="{")]}, r"Messages\[0\].tool_calls is not valid JSON"),
    ({"Messages": [pb.Message(role="a", tool_calls="{}")]}, r"Messages\[0\].tool_calls must be a JSON array"),
    ({"Messages": [pb.Message(role="a", tool_calls="[1]")]}, "a call needs function.name"),
]


@pytest.mark.parametrize(("fields", "words"), INVALID)
def test_what_is_invalid_names_its_field(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        decode(**{"Messages": [pb.Message(role="user", content="hello")], **fields})
    assert caught.value.param is not None
