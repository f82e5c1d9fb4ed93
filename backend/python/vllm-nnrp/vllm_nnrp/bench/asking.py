# SPDX-License-Identifier: MIT
"""One question in the three wire forms, and what its client saw of the answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from localai_proto import backend_pb2 as pb

ANSWER_S = 120.0
TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "",
        "strict": False,
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
    },
}
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens":\s*(\d+)')


class BenchFailed(RuntimeError):
    """A measurement is worth nothing: an answer failed or something is missing; `str()` is one line."""


@dataclass(frozen=True, slots=True)
class Ask:
    """`seed` is how the scripted engine knows a request; `padding_bytes` make it larger and change nothing else."""

    seed: int
    max_tokens: int
    tools: bool = True
    text: str = "Go."
    padding_bytes: int = 0

    def body(self, model: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": self.text}],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "seed": self.seed,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "chat_template_kwargs": {"enable_thinking": False},
        }
        if self.tools:
            body["tools"] = [TOOL]
        if self.padding_bytes:
            body["user"] = "x" * self.padding_bytes
        return body

    def envelope(self, model: str) -> bytes:
        envelope = {
            "schema_version": "openai-compatible/1",
            "operation": "chat.completions.create",
            "body": self.body(model),
        }
        return json.dumps(envelope).encode()

    def options(self) -> pb.PredictOptions:
        return pb.PredictOptions(
            UseTokenizerTemplate=True,
            Messages=[pb.Message(role="user", content=self.text)],
            Tools=json.dumps([TOOL]) if self.tools else "",
            Tokens=self.max_tokens,
            Seed=self.seed,
            IgnoreEOS=True,
            Metadata={"enable_thinking": "false"},
            NegativePrompt="x" * self.padding_bytes,  # read by other engines only
        )


@dataclass(slots=True)
class Stream:
    """What a client saw. Times are of the system's monotonic clock, in seconds."""

    seed: int
    asked_s: float
    receipts: list[tuple[float, int]] = field(default_factory=list)  # when, and how many tokens it held
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    ended_s: float = 0.0
    failure: str = ""
    usage_tokens: int = 0  # as the answer itself counts them
    late: int = 0  # events after the end
    tokens: int = 0
    handle: Any = None  # the door's own
    _wanted: int = 0
    _has_wanted: asyncio.Event = field(default_factory=asyncio.Event)

    async def holds(self, tokens: int) -> None:
        """Wait for so many tokens, or the end."""
        self._wanted = tokens
        if self.tokens < tokens and not self.ended_s:
            self._has_wanted.clear()
            await self._has_wanted.wait()

    def receive(self, now_s: float, tokens: int) -> None:
        if self.ended_s:
            self.late += 1
            return
        if tokens:
            self.tokens += tokens
            self.receipts.append((now_s, tokens))
            self.started.set()
            if self.tokens >= self._wanted:
                self._has_wanted.set()

    def end(self, now_s: float, failure: str = "") -> None:
        if self.ended_s:
            self.late += 1
            return
        self.ended_s = now_s
        self.failure = failure
        self.started.set()
        self.ended.set()
        self._has_wanted.set()


class Door(Protocol):
    """One way in. open() makes the connections of so many streams; a door may be opened again after close()."""

    name: str

    async def open(self, streams: int) -> None: ...
    def ask(self, ask: Ask) -> Stream: ...
    def cancel(self, stream: Stream) -> None:
        """The request for it is written when this returns."""

    async def close(self) -> None: ...


async def all_started(streams: Sequence[Stream], timeout_s: float = ANSWER_S) -> None:
    """Raises BenchFailed if one ended without a token."""
    async with asyncio.timeout(timeout_s):
        for stream in streams:
            await stream.started.wait()
    refuse_failed(streams)


async def all_ended(streams: Sequence[Stream], timeout_s: float = ANSWER_S) -> None:
    """Raises BenchFailed if one failed."""
    async with asyncio.timeout(timeout_s):
        for stream in streams:
            await stream.ended.wait()
    refuse_failed(streams)


def refuse_failed(streams: Sequence[Stream]) -> None:
    """Raises BenchFailed if one has failed."""
    if failed := [stream.failure for stream in streams if stream.failure]:
        raise BenchFailed(f"{len(failed)} of {len(streams)} answers failed: {failed[0]}")


def usage_in(text: bytes) -> int:
    """The completion tokens that an OpenAI body or chunk counts; 0 where it has none."""
    found = _COMPLETION_TOKENS.findall(text)
    return int(found[-1]) if found else 0
