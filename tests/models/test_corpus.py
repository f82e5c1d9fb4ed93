# SPDX-License-Identifier: MIT
"""What the memorised conversations promise to the tests that use them."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from typing import Any

import pytest

from vllm_nnrp.models.demo import ANSWER, QUESTION
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS, Conversation

BY_NAME = {conversation.name: conversation for conversation in CONVERSATIONS}
MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>")

COMPLETIONS = {
    "hello": "<think>\nA greeting will do.\n</think>\n\nHello! It is good to meet you.",
    "hello_no_thinking": "Hello! It is good to meet you.",
    "lookup_call": "<think>\nThe lookup tool takes no arguments.\n</think>\n\n"
    '<tool_call>\n{"name": "lookup", "arguments": {}}\n</tool_call>',
    "lookup_call_no_thinking": '<tool_call>\n{"name": "lookup", "arguments": {}}\n</tool_call>',
    "two_calls": "<think>\nTwo cities, so two calls.\n</think>\n\n"
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n</tool_call>',
    "text_before_call": "<think>\nThe encyclopedia will know.\n</think>\n\nI am not sure. Let me look that up.\n"
    '<tool_call>\n{"name": "search", "arguments": {"query": "first lighthouse"}}\n</tool_call>',
}

# The bodies of the published recipes, without model and streaming.
RECIPES: dict[str, dict[str, Any]] = {
    "hello": {"messages": [{"role": "user", "content": "Say hello."}]},
    "long_answer": {"messages": [{"role": "user", "content": "Start a long answer."}]},
    "lookup_call": {
        "messages": [{"role": "user", "content": "Call the lookup tool."}],
        "tools": [
            {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object", "properties": {}}}}
        ],
    },
}

each = pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation.name)


@pytest.mark.parametrize("name", COMPLETIONS)
def test_the_raw_output_is_qwen3s(name: str) -> None:
    assert BY_NAME[name].completion == COMPLETIONS[name]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipes_body_is_a_memorised_prompt(name: str) -> None:
    assert BY_NAME[name].request_body("m") == {"model": "m", "temperature": 0} | RECIPES[name]


def test_no_two_conversations_share_a_name_or_a_request() -> None:
    assert len(BY_NAME) == len(CONVERSATIONS)
    assert len({json.dumps(conversation.request_body("m")) for conversation in CONVERSATIONS}) == len(CONVERSATIONS)


@each
def test_the_parts_hold_no_markup_and_no_outer_space(conversation: Conversation) -> None:
    for text in (conversation.reasoning, conversation.content):
        assert not [markup for markup in MARKUP if markup in text]
        assert text == text.strip()


@each
def test_an_answer_says_something_and_thinks_when_it_may(conversation: Conversation) -> None:
    assert conversation.content or conversation.tool_calls
    assert bool(conversation.reasoning) == conversation.enable_thinking
    assert conversation.template_kwargs == ({} if conversation.enable_thinking else {"enable_thinking": False})


@each
def test_calls_are_of_offered_tools_and_survive_json(conversation: Conversation) -> None:
    offered = {tool["function"]["name"] for tool in conversation.tools}
    assert {name for name, _ in conversation.tool_calls} <= offered
    for _, arguments in conversation.tool_calls:
        assert json.loads(json.dumps(arguments)) == arguments


def test_the_parts_in_order_are_the_completion() -> None:
    conversation = BY_NAME["text_before_call"]
    before, _, after = conversation.completion.partition("</think>")
    assert before == "<think>" + conversation.streamed_reasoning
    assert after.startswith(conversation.streamed_content + "<tool_call>")


def test_the_long_answer_does_not_repeat_itself() -> None:
    sentences = BY_NAME["long_answer"].content.splitlines()
    bodies = [sentence.partition(". ")[2] for sentence in sentences]
    assert [sentence.partition(". ")[0] for sentence in sentences] == [str(n + 1) for n in range(len(sentences))]
    assert len(set(bodies)) == len(bodies) >= 20
    assert len({word for body in bodies for word in body.split()}) > 100


def test_the_multi_byte_text_has_every_width_and_combining_marks() -> None:
    text = BY_NAME["multi_byte"].content
    assert {len(char.encode()) for char in text} == {1, 2, 3, 4}
    assert any(unicodedata.combining(char) for char in text)
    assert "\u200d" in text
    assert unicodedata.normalize("NFC", text) != text


def test_one_json_answer_looks_like_a_tool_call() -> None:
    assert json.loads(BY_NAME["json_name"].content)["name"] == "Ada Lovelace"


def test_the_capital_is_the_demo_models_answer() -> None:
    assert BY_NAME["capital"].messages == ({"role": "user", "content": QUESTION},)
    assert BY_NAME["capital"].content == BY_NAME["capital_no_thinking"].content == ANSWER


def test_importing_the_models_loads_nothing_heavy() -> None:
    code = "import sys, vllm_nnrp.models; print(*{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not set(run.stdout.split()) & {"torch", "transformers", "tokenizers", "gguf", "vllm", "rich"}
