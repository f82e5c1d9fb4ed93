# SPDX-License-Identifier: MIT
"""How many tokens have gone in and out, and how fast: added up from the observations, nothing is kept of a request."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from chatdelta import Observation, Usage

SPEED_OF_LAST = 32  # answers


@dataclass(frozen=True, slots=True)
class Throughput:
    """Totals since the process started, and the speed of the latest answers: their tokens by the seconds they took."""

    prompt_tokens: int
    completion_tokens: int
    tokens_per_second: float


class TokenCounts:
    """An ObservationSink."""

    def __init__(self) -> None:
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._answers: deque[tuple[int, float]] = deque(maxlen=SPEED_OF_LAST)  # tokens, seconds

    def record(self, observation: Observation) -> None:
        usage = observation.usage
        self._prompt_tokens += usage.prompt_tokens
        self._completion_tokens += usage.completion_tokens
        if usage.completion_tokens:
            self._answers.append((usage.completion_tokens, observation.duration_s))

    def throughput(self, running: Iterable[tuple[Usage, float]]) -> Throughput:
        """Of the answers recorded and of those that run: their tokens so far, and the seconds since they arrived."""
        running = tuple(running)
        answers = (*self._answers, *((usage.completion_tokens, seconds) for usage, seconds in running))
        seconds = sum(seconds for tokens, seconds in answers if tokens)
        return Throughput(
            prompt_tokens=self._prompt_tokens + sum(usage.prompt_tokens for usage, _ in running),
            completion_tokens=self._completion_tokens + sum(usage.completion_tokens for usage, _ in running),
            tokens_per_second=sum(tokens for tokens, _ in answers) / seconds if seconds else 0.0,
        )
