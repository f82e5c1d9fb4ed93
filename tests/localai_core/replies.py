# SPDX-License-Identifier: MIT
"""The replies of one call, as core's inference function takes them in: before any endpoint sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from localai_proto import backend_pb2 as pb

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts in tokens, times in milliseconds."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_ms: float = 0.0
    generation_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """What an endpoint's callback gets for one reply of a stream."""

    text: str
    deltas: tuple[pb.ChatDelta, ...] = ()

    @property
    def content(self) -> str:
        return "".join(delta.content for delta in self.deltas)

    @property
    def reasoning(self) -> str:
        return "".join(delta.reasoning_content for delta in self.deltas)


@dataclass(frozen=True, slots=True)
class Response:
    """One call, read to its end. `logprobs` is the decoded JSON of the last reply that had any."""

    text: str
    usage: Usage
    deltas: tuple[pb.ChatDelta, ...] = ()
    logprobs: Any = None

    @property
    def has_content_or_calls(self) -> bool:
        return any(delta.content or delta.tool_calls for delta in self.deltas)


class RuneLoop:
    """Bytes to whole characters. U+FFFD is taken for half a character, so nothing ever follows it."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> str:
        self._held += data
        whole, _, _ = self._held.decode(errors="replace").partition(REPLACEMENT)
        self._held = self._held[len(whole.encode()) :]
        return whole


def read_stream(replies: Iterable[pb.Reply], callback: Callable[[Step], None]) -> Response:
    """Read a stream to its end; `callback` may be called twice for a reply, or not at all."""
    runes = RuneLoop()
    text, usage, logprobs = "", Usage(), None
    deltas: list[pb.ChatDelta] = []
    for reply in replies:
        usage = read_usage(reply)
        deltas += reply.chat_deltas
        logprobs = read_logprobs(reply) or logprobs
        if whole := runes.feed(reply.message):
            callback(Step(whole, tuple(reply.chat_deltas)))
            text += whole
        if not reply.message:
            callback(Step("", tuple(reply.chat_deltas)))
    return Response(text, usage, tuple(deltas), logprobs)


def read_reply(reply: pb.Reply) -> Response:
    """The one reply of Predict. There is no rune loop here: wrong bytes become U+FFFD when JSON is written."""
    text = reply.message.decode(errors="replace")
    return Response(text, read_usage(reply), tuple(reply.chat_deltas), read_logprobs(reply))


def read_usage(reply: pb.Reply) -> Usage:
    """Each reply's counts replace those of the one before, zeros too."""
    return Usage(reply.prompt_tokens, reply.tokens, reply.timing_prompt_processing, reply.timing_token_generation)


def read_logprobs(reply: pb.Reply) -> Any:
    if not reply.logprobs:
        return None
    try:
        return json.loads(reply.logprobs)
    except ValueError:
        return None
