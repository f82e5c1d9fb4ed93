# SPDX-License-Identifier: MIT
"""How fast an answer came, as the client sees it. The clock comes in as an argument: equal times, equal words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vllm_nnrp.client.events import ClientEvent, Reasoning, Text, ToolCallArguments, ToolCallStart, Usage

Clock = Callable[[], float]
_TOKENS = (Text, Reasoning, ToolCallStart, ToolCallArguments)


@dataclass(slots=True)
class StopWatch:
    """Started when it is made, right before the question goes out. Times are seconds."""

    clock: Clock
    usage: Usage | None = None
    started_s: float = field(init=False)
    first_s: float | None = None
    last_s: float | None = None  # when the counts came: the last token may be one that shows no text

    def __post_init__(self) -> None:
        self.started_s = self.clock()

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.started_s

    def feed(self, event: ClientEvent) -> None:
        if isinstance(event, _TOKENS):
            if self.first_s is None:
                self.first_s = self.elapsed_s
        elif isinstance(event, Usage):
            self.usage = event
            self.last_s = self.elapsed_s

    def summary(self) -> str:
        """`12 prompt + 8 answer tokens · first token after 0.21 s · 40.0 tokens/s`, as far as it is known."""
        parts = []
        if self.usage is not None:
            parts.append(f"{self.usage.prompt_tokens} prompt + {self.usage.completion_tokens} answer tokens")
        if self.first_s is not None:
            parts.append(f"first token after {self.first_s:.2f} s")
        if (rate := self._tokens_per_second()) is not None:
            parts.append(f"{rate:.1f} tokens/s")
        if not parts:
            parts.append(f"{self.elapsed_s:.2f} s")
        return " · ".join(parts)

    def _tokens_per_second(self) -> float | None:
        """Of what followed the first token: the time before it says how long the prompt took."""
        if self.usage is None or self.first_s is None or self.last_s is None:
            return None
        following = self.usage.completion_tokens - 1
        if following < 1 or self.last_s <= self.first_s:
            return None
        return following / (self.last_s - self.first_s)
