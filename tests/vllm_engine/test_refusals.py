# SPDX-License-Identifier: MIT
"""Everything that vLLM's models refuse, and what it should: each with a code, the field, and a text that names it.

The rows' places are those of a client's JSON, whatever vLLM makes of it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from chatdelta import InvalidRequest, Origin, PromptRequest
from tests.parity.runs import Bench
from tests.vllm_engine.scripted import answered, chat
from tests.vllm_engine.versions import IS_NEWEST

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.asyncio]

HUGE = 10**30
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BAD_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": 7}}}
STRICT_BAD_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": 7}, "strict": True}}
NO_WORDS = ("Expecting", "pydantic", "ValueError", "Value error", "not supported between", "subscriptable", "iterable")


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def messages(**message: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", **message}]}


def schema(value: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": value}}}


# (fields, the place that is named)
REFUSED: list[tuple[dict[str, Any], str]] = [
    # numbers out of range
    ({"n": 0}, "n"),
    ({"n": 2, "temperature": 0}, "n"),
    ({"n": 99_999}, "n"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": HUGE}, "top_k"),
    ({"min_p": -0.1}, "min_p"),
    ({"min_p": 1.1}, "min_p"),
    ({"presence_penalty": 2.1}, "presence_penalty"),
    ({"frequency_penalty": -2.1}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 100_000}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_completion_tokens": 100_000}, "max_completion_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
    ({"min_tokens": HUGE}, "min_tokens"),
    ({"seed": 2**63}, "seed"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": 100_000}, "truncate_prompt_tokens"),
    ({"thinking_token_budget": -2}, "thinking_token_budget"),
    ({"thinking_token_budget": HUGE}, "thinking_token_budget"),
    ({"thinking_token_budget": 5}, "thinking_token_budget"),  # the engine is started without a reasoning parser
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),  # the whole vocabulary
    ({"top_logprobs": 3}, "top_logprobs"),  # without logprobs
    ({"logprob_token_ids": [1]}, "logprob_token_ids"),
    ({"logprobs": True, "logprob_token_ids": [HUGE]}, "logprob_token_ids"),
    ({"logprobs": True, "logprob_token_ids": [1] * 129}, "logprob_token_ids"),
    ({"repetition_detection": {"max_pattern_size": -1}}, "repetition_detection"),
    ({"repetition_detection": {"max_pattern_size": 3, "min_count": 1}}, "repetition_detection"),
    ({"repetition_detection": {"max_pattern_size": HUGE, "min_count": 2}}, "repetition_detection"),
    # texts and tokens that cannot be
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"bad_words": ["a", ""]}, "bad_words"),
    ({"bad_words": ["\n"]}, "bad_words"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stop_token_ids": [2048]}, "stop_token_ids"),  # the first that is none
    ({"stop_token_ids": [HUGE]}, "stop_token_ids"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"2048": 1}}, "logit_bias"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [HUGE]}, "allowed_token_ids"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"reasoning_effort": "lots"}, "reasoning_effort"),
    ({"truncation_side": "top"}, "truncation_side"),
    # wrong types
    ({"n": "x"}, "n"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_k": 1.5}, "top_k"),
    ({"max_tokens": "x"}, "max_tokens"),
    ({"stop": 5}, "stop"),
    ({"stop": [5]}, "stop"),
    ({"stop_token_ids": ["x"]}, "stop_token_ids.0"),
    ({"bad_words": "x"}, "bad_words"),
    ({"bad_words": [5]}, "bad_words.0"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"logit_bias": {"1": "x"}}, "logit_bias.1"),
    ({"allowed_token_ids": ["x"]}, "allowed_token_ids.0"),
    ({"logprobs": "x"}, "logprobs"),
    ({"top_logprobs": "x"}, "top_logprobs"),
    ({"reasoning_effort": 5}, "reasoning_effort"),
    ({"include_reasoning": "x"}, "include_reasoning"),
    ({"parallel_tool_calls": "x"}, "parallel_tool_calls"),
    ({"add_generation_prompt": "x"}, "add_generation_prompt"),
    ({"documents": "x"}, "documents"),
    ({"documents": [{"title": 1}]}, "documents.0.title"),
    ({"chat_template_kwargs": "x"}, "chat_template_kwargs"),
    ({"repetition_detection": "x"}, "repetition_detection"),
    ({"stream_options": "x"}, "stream_options"),
    ({"cache_salt": 5}, "cache_salt"),
    ({"user": 5}, "user"),
    # tools
    ({"tools": []}, "tools"),
    ({"tools": [1], "tool_choice": named("f")}, "tools.0.function.name"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}, "tools.0.function.parameters"),
    ({"tools": [BAD_TOOL], "tool_choice": "required"}, "tools"),
    ({"tools": [STRICT_BAD_TOOL]}, "tools"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": "x"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": 5}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": named("g")}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.function"),
    # grammars
    ({"response_format": "x"}, "response_format"),
    ({"response_format": {"type": "x"}}, "response_format.type"),
    ({"response_format": {"type": "structural_tag"}}, "response_format"),
    (schema(5), "response_format.json_schema.schema"),
    (schema({"type": 7}), "response_format"),
    (schema({"$ref": "#/nowhere"}), "response_format"),
    (schema({"type": "integer", "multipleOf": 3}), "response_format"),  # needs another backend than all others
    ({"structured_outputs": "x"}, "structured_outputs"),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"structured_outputs": {"json": "{}", "regex": "a"}}, "structured_outputs"),
    ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
    ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
    ({"structured_outputs": {"json": {"type": 7}}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs"),
    ({"structured_outputs": {"choice": 5}}, "structured_outputs.choice"),
    ({"structured_outputs": {"grammar": ""}}, "structured_outputs"),
    ({"structured_outputs": {"grammar": "root ::= ("}}, "structured_outputs"),
    ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
    ({"structured_outputs": {"structural_tag": "{"}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a"}, "tools": [TOOL], "tool_choice": named("f")}, "structured_outputs"),
    # messages
    ({"messages": []}, "messages"),
    ({"messages": [5]}, "messages.0"),
    (messages(content=5), "messages.1.content"),
    (messages(content=[5]), "messages.1.content.0"),
    (messages(content=[{"type": "hologram"}]), "messages.1.content.0.type"),
    (messages(role="user", content=[{"type": "text", "text": "x"}, {"type": "text"}]), "messages.1.content.1.text"),
    (messages(role="user", content=[{"type": "text", "text": "x"}, {"type": "x"}]), "messages.1.content.1.type"),
    (messages(tool_calls=5), "messages.1.tool_calls"),
    (messages(tool_calls=[{"id": "a", "function": {"arguments": "{}"}}]), "messages.1.tool_calls.0.function.name"),
    ({"continue_final_message": True}, "continue_final_message"),
    # what is the server's
    ({"chat_template": "{{ 7 * 7 }}"}, "chat_template"),
    ({"vllm_xargs": {"kv_cache_report_mode": "x"}}, "vllm_xargs"),
]


# An older vLLM does not hold calls to their tools' schemas where tool_choice is auto, and names this place otherwise.
NEWEST_ONLY = (json.dumps({"tools": [STRICT_BAD_TOOL]}), json.dumps({"response_format": {"type": "structural_tag"}}))
ROWS = [row for row in REFUSED if IS_NEWEST or json.dumps(row[0]) not in NEWEST_ONLY]


@pytest.mark.parametrize(("fields", "param"), ROWS, ids=[json.dumps(fields)[:60] for fields, _ in ROWS])
async def test_a_refusal_of_a_chat_names_the_field(bench: Bench, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await answered(bench, chat(**fields))
    text = str(caught.value)
    assert caught.value.param == param
    assert caught.value.code in ("invalid_request", "invalid_body")
    assert re.search(rf"(?<!\w){re.escape(param)}(?!\w)", text), text
    assert not [words for words in NO_WORDS if words in text], text
    assert len(text) < 250
    assert await answered(bench, chat()), "a refused request left something behind"


async def test_a_prompt_that_is_too_long_has_its_own_code(bench: Bench) -> None:
    for content in ("x " * 9000, "x" * 100_000):
        with pytest.raises(InvalidRequest) as caught:
            await answered(bench, chat(messages=[{"role": "user", "content": content}]))
        assert caught.value.code == "context_length_exceeded"


PROMPTS: list[tuple[dict[str, Any], str]] = [
    ({"logprobs": 21}, "logprobs"),
    ({"top_k": HUGE}, "top_k"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"repetition_penalty": -1}, "repetition_penalty"),
    ({"stop": [""]}, "stop"),
    ({"structured_outputs": {"grammar": "root ::= ("}}, "structured_outputs"),
]


@pytest.mark.parametrize(("fields", "param"), PROMPTS)
async def test_a_refusal_of_a_raw_prompt_names_the_field(bench: Bench, fields: dict[str, Any], param: str) -> None:
    request = PromptRequest("p", {"model": "tiny", "prompt": "Go", **fields}, Origin(door="test"))
    with pytest.raises(InvalidRequest) as caught:
        await anext(bench.engine.generate(request))
    assert caught.value.param == param
    assert param in str(caught.value)
