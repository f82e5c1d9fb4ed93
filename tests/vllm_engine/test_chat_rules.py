# SPDX-License-Identifier: MIT
"""What is done to a chat body before vLLM's request model gets it, the same for both doors. No vLLM needed."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from chatdelta import InvalidRequest
from vllm_engine.errors import naming
from vllm_engine.fields import REFUSED, TAKEN, taken_fields
from vllm_engine.messages import engine_messages
from vllm_engine.shapes import check_shapes
from vllm_engine.thinking import with_switch

PARTS = {"text", "image_url"}
ON, OFF = ({"enable_thinking": value, "thinking": value} for value in (True, False))

SWITCHES: list[tuple[str, dict[str, Any], object, dict[str, Any]]] = [
    ("nothing said", {}, None, {}),
    ("something else", {"x": 1}, None, {"x": 1}),
    ("Qwen's name", {"enable_thinking": False}, None, OFF),
    ("DeepSeek's name", {"thinking": True, "x": 1}, None, {"x": 1, **ON}),
    ("both names", {"thinking": True, "enable_thinking": False}, None, {"thinking": True, "enable_thinking": False}),
    ("a null", {"enable_thinking": None}, None, {"enable_thinking": None}),
    ("an effort", {}, "low", ON),
    ("an effort against a switch", {"enable_thinking": False}, "high", OFF),
    ("no effort", {}, "none", OFF),
    ("no effort against a switch", {"thinking": True, "x": 1}, "none", {"x": 1, **OFF}),
    ("no effort against both", {"thinking": True, "enable_thinking": True}, "none", OFF),
    ("an effort that is none", {"x": 1}, 5, {"x": 1, **ON}),  # vLLM refuses it
]


@pytest.mark.parametrize(("given", "effort", "told"), [row[1:] for row in SWITCHES], ids=[row[0] for row in SWITCHES])
def test_the_thinking_switch(given: dict[str, Any], effort: object, told: dict[str, Any]) -> None:
    assert with_switch(given, effort) == told


def called(arguments: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}]


ARGUMENTS: list[tuple[str, Any, Any]] = [
    ("an object as text", '{"a": [1]}', {"a": [1]}),
    ("an object", {"a": "é"}, {"a": "é"}),
    ("nothing", None, {}),
    ("an empty text", "", {}),
    ("a call that was cut", '{"city": "P', '{"city": "P'),
    ("plain words", "Paris, please", "Paris, please"),
    ("too deep to read", "[" * 100_000, "[" * 100_000),
]


@pytest.mark.parametrize(("arguments", "decoded"), [row[1:] for row in ARGUMENTS], ids=[row[0] for row in ARGUMENTS])
def test_arguments_of_a_past_call_can_always_be_decoded(arguments: Any, decoded: Any) -> None:
    (message,) = engine_messages(called(arguments), PARTS)
    (call,) = message["tool_calls"]
    assert call["type"] == "function"
    assert json.loads(call["function"]["arguments"]) == decoded


def test_text_that_is_json_is_not_written_anew() -> None:
    (message,) = engine_messages(called('{"b":1,  "a":1e3}'), PARTS)
    assert message["tool_calls"][0]["function"]["arguments"] == '{"b":1,  "a":1e3}'


def test_media_are_known_by_their_content_only() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,x"}}
    given = [{"role": "user", "content": [{**image, "uuid": "mine"}, "words", {"type": "text", "text": "uuid"}]}]
    kept = deepcopy(given)
    assert engine_messages(given, PARTS) == [
        {"role": "user", "content": [image, "words", {"type": "text", "text": "uuid"}]}
    ]
    assert given == kept, "the client's own body was changed"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": "x"}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [5]}, "messages.0"),
    ({"messages": [{"role": "user", "content": "x"}, {"content": "x"}]}, "messages.1.role"),
    ({"messages": [{"role": "user", "content": ["x", 5]}]}, "messages.0.content.1"),
    ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages.0.content.0.type"),
    ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "messages.0.content.0.type"),
    ({"messages": [{"role": "user", "content": [{"type": ["text"]}]}]}, "messages.0.content.0.type"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages.0.content.0.text"),
    ({"messages": [{"role": "assistant", "tool_calls": 5}]}, "messages.0.tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [5]}]}, "messages.0.tool_calls.0.function.name"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}]},
        "messages.0.tool_calls.0.function.name",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
        "messages.0.tool_calls.0.id",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "type": "x", "function": {"name": "f"}}]}]},
        "messages.0.tool_calls.0.type",
    ),
    ({"tools": []}, "tools"),
    ({"tools": "x"}, "tools"),
    ({"tools": [1]}, "tools.0.function.name"),
    ({"tools": [{"function": {"name": 5}}]}, "tools.0.function.name"),
    ({"top_logprobs": "5"}, "top_logprobs"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}}, "response_format.json_schema.schema"),
    ({"structured_outputs": "x"}, "structured_outputs"),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs"),
    ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
    ({"structured_outputs": {"regex": "a"}, "tool_choice": {"type": "function"}}, "structured_outputs"),
]


def check(body: dict[str, Any]) -> None:
    check_shapes(body)
    engine_messages(body["messages"], PARTS)


@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_a_wrong_shape_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check({"messages": [{"role": "user", "content": "x"}], **fields})
    assert (caught.value.code, caught.value.param) == ("invalid_body", param)
    assert str(caught.value).startswith(param)


RIGHT: list[dict[str, Any]] = [
    {"continue_final_message": True, "add_generation_prompt": False},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
    {"response_format": {"type": "text"}},
    {"structured_outputs": {"json": "{}"}, "tool_choice": "auto"},
    {"structured_outputs": {"json_object": True, "regex": None}},
    {"top_logprobs": None, "tools": None, "structured_outputs": None, "response_format": None},
]


@pytest.mark.parametrize("fields", RIGHT)
def test_what_is_well_formed_passes(fields: dict[str, Any]) -> None:
    check({"messages": [{"role": "user", "content": "x"}], **fields})


OFFERED = TAKEN | REFUSED.keys() | {"brand_new"}


@pytest.mark.parametrize("name", [*REFUSED, "brand_new"])
def test_a_field_that_is_not_a_clients_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{name} cannot be set here: ") as caught:
        taken_fields({"temperature": 1, name: "x"}, offered=OFFERED)
    assert (caught.value.code, caught.value.param) == ("invalid_body", name)


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_that_asks_for_nothing_does_no_harm(name: str) -> None:
    values: list[Any] = [None, {}, REFUSED[name][0]]
    for nothing in values:
        assert taken_fields({"temperature": 1, name: nothing}, offered=OFFERED) == {"temperature": 1}


def test_fields_that_vllm_does_not_know_are_ignored() -> None:
    assert taken_fields({"model": "m", "metadata": {}, "store": True}, offered=OFFERED) == {"model": "m"}


@pytest.mark.parametrize(
    ("param", "finding", "told"),
    [
        (None, "it is wrong", "it is wrong"),
        ("n", "n must be 1", "n must be 1"),
        ("n", "an integer", "n: an integer"),
        ("top_logprobs", "when using `top_logprobs`, …", "when using `top_logprobs`, …"),
        ("a.b", "axb", "a.b: axb"),
    ],
)
def test_a_refusal_names_its_field(param: str | None, finding: str, told: str) -> None:
    assert naming(param, finding) == told
