# SPDX-License-Identifier: MIT
"""Every memorised conversation arrives exactly, token by token, and the same through both doors."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from localai_proto import backend_pb2 as pb
from tests.real_engine.backend import RealBackend
from tests.real_engine.clients import Answer, ask_grpc, ask_nnrp, predict_options
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS, Conversation

pytestmark = pytest.mark.asyncio(loop_scope="session")
BY_NAME = {conversation.name: conversation for conversation in CONVERSATIONS}


def check(answer: Answer, conversation: Conversation) -> None:
    assert answer.joined("reasoning") == conversation.streamed_reasoning
    assert answer.joined("text").strip() == conversation.content.strip()
    assert answer.calls() == [(name, arguments) for name, arguments in conversation.tool_calls]
    assert len(set(answer.call_ids)) == len(conversation.tool_calls)


def arguments_joined(pieces: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Fragments of a call's arguments that are there at once leave over gRPC as one."""
    found: list[tuple[str, ...]] = []
    for piece in pieces:
        if found and piece[0] == "arguments" and piece[:-1] == found[-1][:-1]:
            found[-1] = (*piece[:-1], found[-1][-1] + piece[-1])
        else:
            found.append(piece)
    return found


@pytest.mark.parametrize("name", BY_NAME)
async def test_a_conversation_through_both_doors(backend: RealBackend, name: str) -> None:
    conversation = BY_NAME[name]
    over_grpc = await ask_grpc(backend, conversation)
    over_nnrp = await ask_nnrp(backend, conversation)
    check(over_grpc, conversation)
    check(over_nnrp, conversation)
    assert arguments_joined(over_grpc.pieces) == arguments_joined(over_nnrp.pieces)
    assert over_grpc.prompt_tokens == over_nnrp.prompt_tokens > 0
    assert over_grpc.completion_tokens == over_nnrp.completion_tokens > 0


async def test_text_and_reasoning_arrive_one_token_at_a_time(backend: RealBackend) -> None:
    from transformers import AutoTokenizer

    conversation = BY_NAME["long_answer"]
    tokenizer = AutoTokenizer.from_pretrained(backend.host.engine().llm.model_config.tokenizer)  # type: ignore[attr-defined]
    answer = await ask_grpc(backend, conversation)
    reasoning = len(tokenizer.encode(conversation.streamed_reasoning, add_special_tokens=False))
    whole = len(tokenizer.encode(conversation.completion, add_special_tokens=False))
    assert answer.count("reasoning") == reasoning
    # All tokens but the two tags, and a text piece each for what follows the reasoning.
    assert answer.count("text") == pytest.approx(whole - reasoning - 2, abs=1)
    assert answer.completion_tokens == whole + 1  # the end token


async def test_tool_arguments_arrive_in_pieces(backend: RealBackend) -> None:
    answer = await ask_nnrp(backend, BY_NAME["nested_unicode_call"])
    assert answer.count("arguments") > 10


async def test_predict_gives_the_whole_answer_at_once(backend: RealBackend) -> None:
    conversation = BY_NAME["text_before_call"]
    reply: pb.Reply = await backend.stub.Predict(predict_options(conversation))
    (delta,) = reply.chat_deltas
    assert reply.message.decode().strip() == conversation.content
    assert delta.content == reply.message.decode()
    assert delta.reasoning_content == conversation.streamed_reasoning
    assert [(call.index, call.name, call.arguments) for call in delta.tool_calls] == [
        (0, "search", '{"query": "first lighthouse"}')
    ]
    assert reply.tokens > 0
    assert reply.prompt_tokens > 0


async def test_a_raw_prompt_is_completed_as_it_is(backend: RealBackend) -> None:
    prompt = (
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    reply: pb.Reply = await backend.stub.Predict(pb.PredictOptions(Prompt=prompt, Tokens=40, TopP=1))
    assert reply.message.decode() == "The capital of France is Paris."


async def test_a_raw_prompt_without_a_limit_runs_to_its_end(backend: RealBackend) -> None:
    prompt = "<|im_start|>user\nStart a long answer.<|im_end|>\n<|im_start|>assistant\n"
    reply: pb.Reply = await backend.stub.Predict(pb.PredictOptions(Prompt=prompt, TopP=1))
    assert reply.message.decode() == BY_NAME["long_answer"].completion


async def test_tokenize_string_counts_the_prompt(backend: RealBackend) -> None:
    conversation = BY_NAME["hello"]
    tokens: pb.TokenizationResponse = await backend.stub.TokenizeString(predict_options(conversation))
    answer = await ask_grpc(backend, conversation)
    assert tokens.length == len(tokens.tokens) == answer.prompt_tokens
