# SPDX-License-Identifier: MIT
"""`openai_chunk`: the streaming chunk an OpenAI server would have sent for an event. Only made for who asks for it."""

from __future__ import annotations

from typing import Any, assert_never

from chatdelta import (
    LogprobsDelta,
    ReasoningDelta,
    ResponseHead,
    StreamEvent,
    TextDelta,
    ToolCallCompleted,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallStarted,
    UsageReport,
    logprob_entry,
    usage_body,
)


def openai_chunk(event: StreamEvent, head: ResponseHead) -> dict[str, Any] | None:
    """A `chat.completion.chunk`; None where OpenAI's stream has no word for the event."""
    chunk: dict[str, Any] = {
        "id": head.id,
        "object": "chat.completion.chunk",
        "created": head.created,
        "model": head.model,
        "choices": [],
    }
    match event:
        case TextDelta(text=text):
            delta: dict[str, Any] = {"content": text}
        case ReasoningDelta(text=text):
            delta = {"reasoning": text}
        case ToolCallStarted(index=index, call_id=call_id, name=name):
            function = {"name": name, "arguments": ""}
            delta = {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case ToolCallDelta(index=index, arguments_delta=arguments):
            delta = {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}
        case LogprobsDelta(choice_index=choice_index, entries=entries):
            content = [logprob_entry(entry) for entry in entries]
            choice = {"index": choice_index, "delta": {}, "logprobs": {"content": content}, "finish_reason": None}
            return {**chunk, "choices": [choice]}
        case UsageReport(usage=usage):
            return {**chunk, "usage": usage_body(usage)}
        case ToolCallCompleted() | ToolCallFailed():
            return None
        case _:
            assert_never(event)
    choice = {"index": event.choice_index, "delta": delta, "logprobs": None, "finish_reason": None}
    return {**chunk, "choices": [choice]}
