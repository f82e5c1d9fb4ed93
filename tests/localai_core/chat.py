# SPDX-License-Identifier: MIT
"""/v1/chat/completions without streaming."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from tests.localai_core.ask import NO_ACTION, Ask, predict_options
from tests.localai_core.attempts import Backend, budget_is_spent, compute
from tests.localai_core.deltas import calls_of, content_of, reasoning_of
from tests.localai_core.json_calls import calls_in, without_tagged_calls
from tests.localai_core.reasoning import split, split_complete, start_tag_in
from tests.localai_core.replies import Response
from tests.localai_core.shown import REQUEST_ID, Call, Shown


def chat(backend: Backend, ask: Ask) -> Shown:
    """The one choice of an answer."""
    start_tag = start_tag_in(ask.prompt)
    message = _Message(start_tag)
    outcome = compute(
        backend,
        predict_options(ask),
        on_text=message.read,
        should_retry=message.is_empty if ask.expects_calls else None,
    )
    shown = _with_tools(message, outcome.response) if ask.expects_calls else _plain(message, outcome.response)
    shown.usage, shown.attempts = outcome.response.usage, outcome.attempts
    if shown.finish_reason == "stop" and budget_is_spent(shown.usage.completion_tokens, ask.max_tokens):
        shown.finish_reason = "length"
    return shown


class _Message:
    """The `message` of an attempt, split by its tags."""

    def __init__(self, start_tag: str) -> None:
        self.start_tag = start_tag
        self.reasoning = self.text = ""

    def read(self, text: str) -> None:
        self.reasoning, self.text = split(text, self.start_tag)

    def is_empty(self) -> bool:
        return not self.text


def _plain(message: _Message, response: Response) -> Shown:
    """Deltas, where there are any, replace the message; tags are looked for where no delta had reasoning."""
    text, reasoning = content_of(response.deltas), reasoning_of(response.deltas)
    if not text and not reasoning:
        text, reasoning = message.text, message.reasoning
    elif not reasoning:
        reasoning, text = split_complete(text, message.start_tag)
    return Shown(text, reasoning, logprobs=response.logprobs)


def _with_tools(message: _Message, response: Response) -> Shown:
    """Calls of the deltas; without any, calls that core finds in the message. Log-probabilities get lost."""
    text, reasoning = content_of(response.deltas), reasoning_of(response.deltas)
    calls = calls_of(response.deltas)
    if not calls:
        if not text:
            reasoning = message.reasoning
        if calls := calls_in(message.text):
            text = without_tagged_calls(message.text) if text else ""
    if not calls or calls[0].name == NO_ACTION:
        return Shown(message_of(calls, text or message.text), reasoning)
    calls = [replace(call, id=call.id or REQUEST_ID) for call in calls]
    return Shown(text, reasoning, calls, "tool_calls")


def message_of(calls: Sequence[Call], text: str) -> str:
    """What is shown where no tool is called: the text, or what the no-action function was called with."""
    if not calls:
        return text
    try:
        arguments = json.loads(calls[0].arguments)
    except ValueError:
        return ""
    message = arguments.get("message") if isinstance(arguments, dict) else None
    return message if isinstance(message, str) else ""
