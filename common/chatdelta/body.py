# SPDX-License-Identifier: MIT
"""The OpenAI chat-completion body of a finished stream, assembled from its deltas and joined once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chatdelta.deltas import EngineDelta, FinishReason, TokenLogprob, Usage
from chatdelta.toolcalls import ToolCall


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What every OpenAI object of one response repeats; `created` is a unix time in seconds."""

    id: str
    created: int
    model: str


class ChoiceBody:
    """Collects one choice. Text is kept as pieces: no cumulative copy is made before the end."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.logprobs: list[TokenLogprob] = []
        self._stop_reason: int | str | None = None
        self._content: list[str] = []
        self._reasoning: list[str] = []

    def add(self, delta: EngineDelta) -> None:
        if self.finish_reason is not None:
            raise RuntimeError(f"choice {self.index} got a delta after its finish reason")
        if delta.content:
            self._content.append(delta.content)
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
        self.logprobs.extend(delta.logprobs)
        self.completion_tokens = delta.completion_tokens or self.completion_tokens
        self.reasoning_tokens = delta.reasoning_tokens or self.reasoning_tokens
        self.finish_reason = delta.finish_reason
        self._stop_reason = delta.stop_reason

    def message(self, calls: Sequence[ToolCall]) -> dict[str, Any]:
        """One entry of `choices`."""
        content = "".join(self._content)
        message: dict[str, Any] = {"role": "assistant", "content": content if content or not calls else None}
        if self._reasoning:
            message["reasoning"] = "".join(self._reasoning)
        if calls:
            message["tool_calls"] = [
                {"id": c.call_id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in calls
            ]
        return {
            "index": self.index,
            "message": message,
            "logprobs": {"content": [logprob_entry(entry) for entry in self.logprobs]} if self.logprobs else None,
            "finish_reason": self.finish_reason.value if self.finish_reason else None,
            "stop_reason": self._stop_reason,
        }


def logprob_entry(entry: TokenLogprob) -> dict[str, Any]:
    """One element of OpenAI's `logprobs.content`."""
    return {
        "token": entry.token,
        "logprob": entry.logprob,
        "bytes": list(entry.token_bytes),
        "top_logprobs": [
            {"token": top.token, "logprob": top.logprob, "bytes": list(top.token_bytes)} for top in entry.top
        ],
    }


def usage_body(usage: Usage) -> dict[str, Any]:
    """OpenAI's `usage` object."""
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return body


def completion_body(head: ResponseHead, choices: list[dict[str, Any]], usage: Usage) -> dict[str, Any]:
    """The whole chat-completion body."""
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "usage": usage_body(usage),
    }
