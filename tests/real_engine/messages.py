# SPDX-License-Identifier: MIT
"""Hypothesis strategies for any message of the contract, made from its descriptor, with values that hurt."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from localai_proto import backend_pb2 as pb

Values = st.SearchStrategy[Any]
INT32_MAX = 2**31 - 1

TEXTS: Values = st.one_of(
    st.sampled_from(("", " ", "\0", "hello", "𝕙é\u202e\ufffd", "<|im_start|>", "<think>", "</tool_call>", "a" * 3000)),
    st.text(max_size=40),
)
NUMBERS: Values = st.sampled_from((0, 1, -1, 2, 7, 20, 64, 151_643, 10**6, INT32_MAX, -(2**31)))
FLOATS: Values = st.one_of(
    st.sampled_from((0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 2.5, 1e-45, 3.4e38, float("nan"), float("inf"), float("-inf"))),
    st.floats(width=32),
)
JSON: Values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from((0, -1, 10**30, 1e308)),
        TEXTS,
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BROKEN_JSON: Values = st.sampled_from(
    (
        "{",
        "nul",
        "NaN",
        "[1,]",
        '"\\ud800"',
        '{"a": "\\udfff"}',
        '{"a": 1, "a": 2}',
        "[" * 200 + "]" * 200,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        "1e999",
        "-" + "9" * 5000,
        "\ufeff{}",
    )
)


def json_texts(*wanted: Any) -> Values:
    """One of these values as JSON, or any other JSON, or what is none."""
    return st.sampled_from([json.dumps(value) for value in wanted]) | JSON.map(json.dumps) | BROKEN_JSON


SCHEMAS: tuple[Any, ...] = (
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"$ref": "#"}}},
    {"type": "string", "pattern": "(a+)+$"},
    {"type": "array", "minItems": 5, "maxItems": 1},
    {"enum": []},
    {"type": "nothing"},
    {"type": "object", "properties": 1},
)
TOOLS: tuple[Any, ...] = (
    None,
    {},
    [{}],
    [{"type": "function", "function": {"name": "lookup", "parameters": None}}],
    [{"type": "function", "function": {"name": "lookup", "parameters": SCHEMAS[0]}}] * 2,
    [{"type": "function", "function": {"name": "lookup", "strict": True, "parameters": SCHEMAS[1]}}],
    [{"type": "function", "function": {"name": "\ud800", "parameters": {"type": "object"}}}],
    [{"type": "function", "function": {"name": "lookup", "description": 1, "parameters": SCHEMAS[6]}}],
)
CALLS: tuple[Any, ...] = (
    [{"index": 0, "id": "c", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}],
    [{"id": 7, "function": {"name": "lookup", "arguments": "not json"}}],
    [{"function": {"name": "lookup", "arguments": [1, {"a": None}]}}],
    [{"function": {"name": None}}],
)
CHOICES: tuple[Any, ...] = (
    "auto",
    "none",
    "required",
    "any",
    "",
    "tool",
    {"type": "function", "function": {"name": "lookup"}},
    [],
    3,
)
GRAMMARS = (
    'root ::= "a" | "b"',
    "root ::= root root",
    'root ::= "a',
    "root ::=",
    "start: /a+/",
    "root ::= [",
    "root ::= missing",
    'root ::= ("a"*)*',
)
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
MEDIA: Values = st.sampled_from(("", "%%%", PIXEL, f"data:image/png;base64,{PIXEL}", "data:,x", "http://127.0.0.1:1/a"))
METADATA: Values = st.fixed_dictionaries(
    {},
    optional={
        "enable_thinking": st.sampled_from(("true", "false", "True", "", "maybe")),
        "reasoning_effort": st.sampled_from(("none", "low", "high", "", "enormous")),
        "chat_template_kwargs": json_texts(
            {"enable_thinking": False},
            {"tools": [], "messages": 1},
            {"add_generation_prompt": False},
            [],
            {"a": "\ud800"},
        ),
        "mcp_servers": TEXTS,
    },
)
MESSAGES: Values = st.builds(
    pb.Message,
    role=st.sampled_from(("user", "user", "system", "assistant", "tool", "developer", "", "robot")),
    content=TEXTS,
    name=st.sampled_from(("", "", "bob")),
    tool_call_id=st.sampled_from(("", "", "c")),
    reasoning_content=st.sampled_from(("", "", "hm")),
    tool_calls=st.one_of(st.just(""), st.just(""), json_texts(*CALLS)),
)

# Fields whose text or numbers mean something; all others get values of their type.
TELLING: Mapping[str, Values] = {
    "backend.PredictOptions.Messages": st.lists(MESSAGES, max_size=4),
    "backend.PredictOptions.Metadata": METADATA,
    "backend.PredictOptions.Tools": json_texts(*TOOLS),
    "backend.PredictOptions.ToolChoice": json_texts(*CHOICES) | st.sampled_from(CHOICES[:6]),
    "backend.PredictOptions.Grammar": st.sampled_from(GRAMMARS) | json_texts(*SCHEMAS),
    "backend.PredictOptions.LogitBias": json_texts({"1": -100}, {"1": 1e9}, {"999999999": 1}, {"-1": 1}, {"1": None}),
    "backend.PredictOptions.Images": st.lists(MEDIA, max_size=2),
    "backend.PredictOptions.Videos": st.lists(MEDIA, max_size=2),
    "backend.PredictOptions.Audios": st.lists(MEDIA, max_size=2),
    "backend.PredictOptions.ModelIdentity": st.sampled_from(("", "memorised", "another")),
    "backend.ScoreRequest.ModelIdentity": st.sampled_from(("", "memorised", "another")),
    "backend.ScoreRequest.candidates": st.lists(TEXTS | st.sampled_from((" hello", "é", "\n")), max_size=5),
    "backend.ScoreRequest.stable_prefix_len": NUMBERS | st.integers(0, 10),
    "backend.ModelOptions.EngineArgs": json_texts({"max_model_length": 9}, {"seed": "x"}, {"hf_overrides": 1}, {"": 0}),
    "backend.ModelOptions.Options": st.lists(
        st.sampled_from(("", ":", "--", "tool_parser:", "nnrp:x", "--seed", "--seed=x", "--no-such:1", "a" * 300))
        | st.text(max_size=20),
        max_size=3,
    ),
}
BY_TYPE: Mapping[int, Values] = {
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_INT32: NUMBERS,
    FieldDescriptor.TYPE_FLOAT: FLOATS,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
}


def fields_of(message: type[Message]) -> dict[str, Values]:
    """For every field its values."""
    return {field.name: _values(field) for field in message.DESCRIPTOR.fields}


def _values(field: Any) -> Values:
    if field.full_name in TELLING:
        return TELLING[field.full_name]
    if field.message_type is not None:
        inner = getattr(pb, field.message_type.name)
        values: Values = st.fixed_dictionaries({}, optional=fields_of(inner)).map(lambda given: inner(**given))
    else:
        values = BY_TYPE[field.type]
    return st.lists(values, max_size=4) if field.is_repeated else values


def some_of(fields: Mapping[str, Values], *, most: int) -> Values:
    """Values for up to that many of the fields."""
    names = st.lists(st.sampled_from(sorted(fields)), max_size=most, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: fields[name] for name in chosen}))
