# SPDX-License-Identifier: MIT
"""What a user was shown by one endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.localai_core.replies import Usage

REQUEST_ID = "request-id"  # what core falls back to for calls without an id
Chunk = tuple[str, str]  # ("text" | "reasoning" | "call" | "arguments", what came)


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call. `arguments` is JSON text, if the model wrote JSON."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Shown:
    """One answer. For a stream, `chunks` is the order of arrival and the texts are those chunks joined."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    logprobs: Any = None
    attempts: int = 1
    chunks: list[Chunk] = field(default_factory=list)

    def show_text(self, text: str) -> None:
        self.text += text
        self.chunks.append(("text", text))

    def show_reasoning(self, text: str) -> None:
        self.reasoning += text
        self.chunks.append(("reasoning", text))

    def show_call(self, call: Call) -> None:
        """The two chunks of a streamed call: id and name, then all arguments."""
        self.calls.append(call)
        self.chunks += [("call", call.name), ("arguments", call.arguments)]
