# SPDX-License-Identifier: MIT
"""What is asked, and the one right answer to it; and how the scripted engine plays that answer."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from chatdelta import EngineDelta, FinishReason, ToolCallFragment
from chatdelta.testing import Gap, Step

MODEL = "scripted"
GAP_S = 0.004  # between two tokens
TOOL = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object", "properties": {}}}}


@dataclass(frozen=True)
class Question:
    """`body` is the OpenAI body without `stream`; `calls` are names with their arguments as JSON text."""

    name: str
    body: dict[str, Any]
    text: str
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Shape:
    """How many tokens of each kind an answer has, and the time between two of them."""

    reasoning: int = 0
    text: int = 0
    calls: int = 0
    gap_s: float = GAP_S


SHAPES = {
    "brief": Shape(text=3),
    "long": Shape(text=150),
    "thoughtful": Shape(reasoning=20, text=20),
    "burst": Shape(text=200, gap_s=0.0),
    "calls": Shape(reasoning=5, calls=3),
    "text and call": Shape(text=10, calls=1),
    "silent": Shape(text=2, gap_s=0.3),
}
PIECES = 6  # of a call's arguments


@dataclass(frozen=True)
class Answer:
    """The pieces of one answer, every one of them different from all others of all answers."""

    shape: Shape
    label: str
    reasoning: tuple[str, ...] = field(init=False)
    text: tuple[str, ...] = field(init=False)
    calls: tuple[tuple[str, ...], ...] = field(init=False)  # each its arguments' pieces

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "reasoning", tuple(f"<{self.label}.{n}>" for n in range(self.shape.reasoning)))
        put(self, "text", tuple(f"{self.label}:{n} ☕ " for n in range(self.shape.text)))
        put(self, "calls", tuple(self._arguments(call) for call in range(self.shape.calls)))

    def _arguments(self, call: int) -> tuple[str, ...]:
        text = json.dumps({"of": self.label, "call": call, "list": list(range(5))})
        size = -(-len(text) // PIECES)
        return tuple(text[at : at + size] for at in range(0, len(text), size))

    def steps(self) -> Iterator[Step]:
        """For the scripted engine."""
        deltas = [EngineDelta(reasoning=piece) for piece in self.reasoning]
        deltas += [EngineDelta(content=piece) for piece in self.text]
        for number, pieces in enumerate(self.calls):
            start = ToolCallFragment(number, f"call-{self.label}-{number}", "lookup")
            deltas += [EngineDelta(tool_calls=(start,))]
            deltas += [EngineDelta(tool_calls=(ToolCallFragment(number, arguments=piece),)) for piece in pieces]
        reason = FinishReason.TOOL_CALLS if self.calls else FinishReason.STOP
        for count, delta in enumerate([*deltas, EngineDelta(finish_reason=reason)], start=1):
            yield Gap(self.shape.gap_s)
            yield EngineDelta(
                content=delta.content,
                reasoning=delta.reasoning,
                tool_calls=delta.tool_calls,
                prompt_tokens=3,
                completion_tokens=count,
                finish_reason=delta.finish_reason,
            )


def scripted_question(chance: random.Random, number: int) -> Question:
    name = chance.choice(tuple(SHAPES))
    answer = Answer(SHAPES[name], f"q{number}")
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": f"{name}/{answer.label}"}]}
    if answer.calls:
        body["tools"] = [TOOL]
    calls = tuple(("lookup", "".join(pieces)) for pieces in answer.calls)
    return Question(name, body, "".join(answer.text), "".join(answer.reasoning), calls)


def scripted_answer(body: Any) -> Iterator[Step]:
    """What the engine of the scripted backend plays for that."""
    name, _, label = body["messages"][-1]["content"].partition("/")
    return Answer(SHAPES[name], label).steps()
