# SPDX-License-Identifier: MIT
"""What a smoke run asks: the memorised model's conversations, and a cancel in the middle of the long one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from vllm_nnrp.client.conversation import Answer, Question, Sampling
from vllm_nnrp.client.events import Cancelled, Done, Reasoning, Text
from vllm_nnrp.client.transport import ChatClient, ClientError, Target, open_client
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS, Conversation
from vllm_nnrp.release.records import SmokeStep

BY_NAME = {conversation.name: conversation for conversation in CONVERSATIONS}
# One of each kind: text, reasoning on and off, one call, several, text before a call, what follows a tool's result.
ASKED = (
    "hello",
    "hello_no_thinking",
    "weather_call",
    "two_calls",
    "text_before_call",
    "after_tool_result",
    "multi_byte",
)
LONG = BY_NAME["long_answer"]
EVENTS_BEFORE_CANCEL = 3

Step = tuple[str, Callable[[ChatClient], Awaitable[str]]]


@dataclass(frozen=True, slots=True)
class Door:
    """A door that is open."""

    name: Literal["grpc", "nnrp"]
    target: Target
    model: str


async def run_steps(door: Door) -> list[SmokeStep]:
    """Every exchange over one door, one after the other; what fails is in its step."""
    steps: list[Step] = [(name, lambda client, name=name: ask(client, door, BY_NAME[name])) for name in ASKED]  # type: ignore[misc]
    steps.append(("cancel", lambda client: cancel(client, door)))
    steps.append(("hello after the cancel", lambda client: ask(client, door, BY_NAME["hello"])))
    done: list[SmokeStep] = []
    for name, step in steps:
        started_s = time.monotonic()
        try:
            async with open_client(door.target) as client:
                detail = await step(client)
        except ClientError as exc:
            detail = str(exc)
        done.append(SmokeStep(door=door.name, name=name, seconds=time.monotonic() - started_s, detail=detail))
    return done


def question(door: Door, conversation: Conversation) -> Question:
    thinking = None if conversation.enable_thinking else False
    return Question(conversation.messages, conversation.tools, door.model, Sampling(enable_thinking=thinking))


async def ask(client: ChatClient, door: Door, conversation: Conversation) -> str:
    """What is wrong with the answer, empty for nothing."""
    answer, reasoning = Answer(), ""
    async for event in client.ask(question(door, conversation), asyncio.Event()):
        answer.feed(event)
        if isinstance(event, Reasoning):
            reasoning += event.text
    return difference(answer, reasoning, conversation)


def difference(answer: Answer, reasoning: str, expected: Conversation) -> str:
    finish = "tool_calls" if expected.tool_calls else "stop"
    calls = [(call.name, json.loads(call.arguments)) for call in answer.calls]
    wanted_calls = [(name, dict(arguments)) for name, arguments in expected.tool_calls]
    wanted_reasoning = expected.reasoning if expected.enable_thinking else ""
    for what, got, wanted in (
        ("ending", answer.ending, Done(finish)),
        ("reasoning", reasoning.strip(), wanted_reasoning),
        ("text", answer.text.strip(), expected.content),
        ("calls", calls, wanted_calls),
    ):
        if got != wanted:
            return f"{what}: {got!r} instead of {wanted!r}"
    return ""


async def cancel(client: ChatClient, door: Door) -> str:
    """Stop the long answer early."""
    stop, answer, events = asyncio.Event(), Answer(), 0
    async for event in client.ask(question(door, LONG), stop):
        answer.feed(event)
        events += isinstance(event, Text | Reasoning)
        if events == EVENTS_BEFORE_CANCEL:
            stop.set()
    if not isinstance(answer.ending, Cancelled):
        return f"ending: {answer.ending!r} instead of a cancel"
    if answer.text.strip() == LONG.content:
        return "the answer was whole already"
    return ""
