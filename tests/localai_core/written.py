# SPDX-License-Identifier: MIT
"""Replies as tests write them."""

from __future__ import annotations

from collections.abc import Sequence

from localai_proto import backend_pb2 as pb
from tests.localai_core.ask import Ask

USER = ({"role": "user", "content": "hello"},)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
PLAIN = Ask(USER)
TOOLS = Ask(USER, tools=(TOOL,), tool_choice="auto")
Part = tuple[int, str, str, str]  # index, id, name, arguments


def reply(
    message: str = "",
    content: str = "",
    *,
    reasoning: str = "",
    calls: Sequence[Part] = (),
    tokens: int = 0,
    logprobs: bytes = b"",
) -> pb.Reply:
    """A reply with one delta, if there is anything for it."""
    parts = [pb.ToolCallDelta(index=index, id=id_, name=name, arguments=args) for index, id_, name, args in calls]
    delta = pb.ChatDelta(content=content, reasoning_content=reasoning, tool_calls=parts)
    return pb.Reply(
        message=message.encode(),
        chat_deltas=[delta] if content or reasoning or parts else [],
        tokens=tokens,
        prompt_tokens=3,
        logprobs=logprobs,
    )


def both(text: str) -> pb.Reply:
    """Text in the message and in the delta."""
    return reply(text, text)
