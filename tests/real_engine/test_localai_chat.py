# SPDX-License-Identifier: MIT
"""What users of LocalAI's /v1/chat/completions see of the real engine, streamed and not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from localai_proto import backend_pb2 as pb
from tests.localai_core.ask import Ask
from tests.localai_core.attempts import Backend
from tests.localai_core.backends import GrpcBackend
from tests.localai_core.chat import chat
from tests.localai_core.chat_stream import chat_stream
from tests.localai_core.shown import REQUEST_ID, Shown
from tests.real_engine.backend import RealBackend
from tests.real_engine.clients import predict_options
from tests.real_engine.localai import ask_for, show
from tests.real_engine.test_answers import BY_NAME
from tests.real_engine.test_output import END, token_count
from tests.real_engine.test_semantics import NAMED, TOOLS, is_valid

pytestmark = pytest.mark.asyncio(loop_scope="session")
CAPITAL, QUIET_CAPITAL = BY_NAME["capital"], BY_NAME["capital_no_thinking"]
WEATHER_CALL, LOOKUP = BY_NAME["weather_call"], BY_NAME["lookup_call"]
PARIS, THOUGHT = "The capital of France is Paris.", "\nThis is about geography. Paris is the capital.\n"
Endpoint = Callable[[Backend, Ask], Shown]
each_way = pytest.mark.parametrize("endpoint", [chat_stream, chat])


@each_way
@pytest.mark.parametrize("name", BY_NAME)
async def test_a_conversation(backend: RealBackend, endpoint: Endpoint, name: str) -> None:
    conversation = BY_NAME[name]
    shown = await show(backend.grpc_address, endpoint, ask_for(conversation))
    assert shown.reasoning == conversation.streamed_reasoning
    assert shown.text.strip() == conversation.content
    assert [(call.name, json.loads(call.arguments)) for call in shown.calls] == list(conversation.tool_calls)
    ids = {call.id for call in shown.calls}
    assert len(ids - {"", REQUEST_ID}) == len(shown.calls)
    assert (shown.finish_reason, shown.attempts) == ("tool_calls" if conversation.tool_calls else "stop", 1)
    assert shown.usage.completion_tokens == token_count(backend, conversation.completion + END)
    prompt = await backend.stub.TokenizeString(predict_options(conversation))
    assert shown.usage.prompt_tokens == prompt.length
    assert shown.usage.prompt_ms > 0
    assert shown.usage.generation_ms > 0


class Heard(GrpcBackend):
    """Counts the deltas of text in each reply of a stream."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.texts: list[int] = []

    def predict_stream(self, options: pb.PredictOptions) -> Iterator[pb.Reply]:
        for reply in super().predict_stream(options):
            self.texts.append(sum(bool(delta.content) for delta in reply.chat_deltas))
            yield reply


@pytest.mark.parametrize("name", ["long_answer", "hello_with_tools_offered", "json_name_with_tools_offered"])
async def test_text_is_shown_as_it_comes(backend: RealBackend, name: str) -> None:
    conversation = BY_NAME[name]
    heard = Heard(backend.grpc_address)
    shown = await asyncio.to_thread(chat_stream, heard, ask_for(conversation))
    pieces = [text for kind, text in shown.chunks if kind == "text"]
    # A delta for each token; core shows those of one reply, which were there at once, as one piece.
    joined = sum(max(0, texts - 1) for texts in heard.texts)
    assert len(pieces) >= token_count(backend, conversation.content) - joined
    assert sum(heard.texts) >= token_count(backend, conversation.content)
    assert "".join(pieces).strip() == conversation.content


# Thinking and tool choice

SWITCHES: list[tuple[str, dict[str, str], tuple[str, str]]] = [
    ("on", {"enable_thinking": "true"}, (THOUGHT, f"\n\n{PARIS}")),
    ("off", {"enable_thinking": "false"}, ("", PARIS)),
    ("no effort", {"enable_thinking": "false", "reasoning_effort": "none"}, ("", PARIS)),
    ("nothing said", {}, (THOUGHT, f"\n\n{PARIS}")),
]


@each_way
@pytest.mark.parametrize(("metadata", "parts"), [row[1:] for row in SWITCHES], ids=[row[0] for row in SWITCHES])
async def test_thinking(
    backend: RealBackend, endpoint: Endpoint, metadata: dict[str, str], parts: tuple[str, str]
) -> None:
    shown = await show(backend.grpc_address, endpoint, ask_for(CAPITAL, metadata=metadata))
    assert (shown.reasoning, shown.text) == parts


@each_way
@pytest.mark.parametrize("conversation", [LOOKUP, BY_NAME["lookup_call_no_thinking"]], ids=["thinking", "quiet"])
async def test_no_tool_by_choice(backend: RealBackend, endpoint: Endpoint, conversation: Any) -> None:
    """Core sends the tools all the same, and parses nothing; what it gets is plain text."""
    shown = await show(backend.grpc_address, endpoint, ask_for(conversation, tool_choice="none"))
    assert not shown.calls
    assert shown.finish_reason == "stop"
    assert shown.text.strip()


FORCED: list[tuple[str, Any, str]] = [
    ("required", "required", ""),
    ("named", NAMED, "set_level"),
    ("named, the short form", {"type": "function", "name": "set_level"}, "set_level"),
]


@each_way
@pytest.mark.parametrize(("choice", "name"), [row[1:] for row in FORCED], ids=[row[0] for row in FORCED])
async def test_a_forced_call(backend: RealBackend, endpoint: Endpoint, choice: Any, name: str) -> None:
    ask = ask_for(QUIET_CAPITAL, tools=TOOLS, tool_choice=choice, max_tokens=400)
    shown = await show(backend.grpc_address, endpoint, ask)
    assert shown.finish_reason == "tool_calls"
    assert shown.text == ""
    whole = shown.calls if shown.usage.completion_tokens < 400 else shown.calls[:-1]
    assert whole
    for call in whole:
        assert is_valid(call.name, json.loads(call.arguments))
        assert call.name == (name or call.name)


@each_way
async def test_a_forced_call_after_the_reasoning(backend: RealBackend, endpoint: Endpoint) -> None:
    shown = await show(backend.grpc_address, endpoint, ask_for(WEATHER_CALL, tool_choice="required"))
    assert shown.reasoning == "\nI need the weather of one city.\n"
    assert [(call.name, json.loads(call.arguments)) for call in shown.calls] == [("get_weather", {"city": "Paris"})]


# Where it ends


@each_way
@pytest.mark.parametrize("limit", [1, 5])
async def test_a_limit_inside_the_reasoning_is_one_answer(backend: RealBackend, endpoint: Endpoint, limit: int) -> None:
    for conversation in (CAPITAL, BY_NAME["hello_with_tools_offered"]):
        shown = await show(backend.grpc_address, endpoint, ask_for(conversation, max_tokens=limit))
        assert (shown.text, shown.finish_reason, shown.attempts) == ("", "length", 1)
        assert shown.usage.completion_tokens == limit
        if endpoint is chat_stream or not conversation.tools:  # core loses it otherwise
            assert conversation.streamed_reasoning.startswith(shown.reasoning)


@each_way
async def test_a_limit_inside_the_text(backend: RealBackend, endpoint: Endpoint) -> None:
    limit = token_count(backend, "The capital of")
    shown = await show(backend.grpc_address, endpoint, ask_for(QUIET_CAPITAL, max_tokens=limit))
    assert (shown.text, shown.finish_reason, shown.usage.completion_tokens) == ("The capital of", "length", limit)


@each_way
async def test_a_limit_inside_a_call(backend: RealBackend, endpoint: Endpoint) -> None:
    """Core has no word for a call that was cut: it shows what there is."""
    limit = token_count(backend, WEATHER_CALL.completion.partition("Paris")[0])
    shown = await show(backend.grpc_address, endpoint, ask_for(WEATHER_CALL, max_tokens=limit))
    assert [(call.name, call.arguments) for call in shown.calls] == [("get_weather", '{"city": "')]
    assert (shown.finish_reason, shown.usage.completion_tokens) == ("tool_calls", limit)


@each_way
@pytest.mark.parametrize(("stop", "text"), [(" is Paris", "The capital of France"), ("Paris.!", PARIS)])
async def test_a_stop_word(backend: RealBackend, endpoint: Endpoint, stop: str, text: str) -> None:
    shown = await show(backend.grpc_address, endpoint, ask_for(QUIET_CAPITAL, stop=[stop]))
    assert (shown.text, shown.finish_reason, shown.attempts) == (text, "stop", 1)


@each_way
async def test_an_answer_of_reasoning_alone_is_asked_for_once(backend: RealBackend, endpoint: Endpoint) -> None:
    for conversation in (CAPITAL, BY_NAME["hello_with_tools_offered"]):
        stop = conversation.reasoning.split()[1]
        shown = await show(backend.grpc_address, endpoint, ask_for(conversation, stop=[stop]))
        assert shown.reasoning == conversation.streamed_reasoning.partition(stop)[0]
        assert (shown.text, shown.finish_reason, shown.attempts) == ("\n", "stop", 1)


# Beside the text


@each_way
async def test_log_probabilities(backend: RealBackend, endpoint: Endpoint) -> None:
    shown = await show(backend.grpc_address, endpoint, ask_for(QUIET_CAPITAL, logprobs=True))
    assert shown.text == PARIS
    if endpoint is chat_stream:
        assert shown.logprobs is None
        return
    entries = shown.logprobs["content"]
    assert "".join(entry["token"] for entry in entries) == PARIS + END
    assert {len(entry["top_logprobs"]) for entry in entries} == {1}
    shown = await show(backend.grpc_address, endpoint, ask_for(QUIET_CAPITAL, logprobs=True, top_logprobs=3))
    assert {len(entry["top_logprobs"]) for entry in shown.logprobs["content"]} == {3}


@each_way
async def test_a_biased_token_is_never_chosen(backend: RealBackend, endpoint: Endpoint) -> None:
    tokenizer = backend.host.engine().llm.get_tokenizer()  # type: ignore[attr-defined]
    (first, *_) = tokenizer.encode(PARIS, add_special_tokens=False)
    ask = ask_for(QUIET_CAPITAL, logit_bias={str(first): -100.0}, max_tokens=20)
    shown = await show(backend.grpc_address, endpoint, ask)
    assert shown.text
    assert not shown.text.startswith("The")


@each_way
async def test_a_prompt_that_core_rendered_is_parsed_by_core(backend: RealBackend, endpoint: Endpoint) -> None:
    """A model without the tokenizer's template: the backend gives plain text, and core finds tags and calls in it."""
    prompt = f"<|im_start|>user\n{CAPITAL.messages[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    shown = await show(backend.grpc_address, endpoint, replace(ask_for(CAPITAL), prompt=prompt))
    assert (shown.reasoning.strip(), shown.text.strip()) == (CAPITAL.reasoning, PARIS)
    system = '<|im_start|>system\n# Tools\nlookup {"properties": {}, "type": "object"}<|im_end|>\n'
    prompt = f"{system}<|im_start|>user\nCall the lookup tool.<|im_end|>\n<|im_start|>assistant\n"
    shown = await show(backend.grpc_address, endpoint, replace(ask_for(LOOKUP), prompt=prompt))
    assert [(call.name, call.arguments) for call in shown.calls] == [("lookup", "{}")]
    assert shown.reasoning.strip() == LOOKUP.reasoning
    assert "<think>" not in shown.text
