# SPDX-License-Identifier: MIT
"""What an engine yields: increments of one choice, already split into content, reasoning and tool calls."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from chatdelta.value import value


class FinishReason(Enum):
    """Why a choice ended, in OpenAI's words plus the two an engine adds."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    ABORT = "abort"  # aborted in the engine: ours or somebody else's doing, never a success
    ERROR = "error"  # the engine failed this choice


@dataclass(frozen=True, slots=True)
class ToolCallFragment:
    """A piece of one call. The first of an index carries `id` and `name`; later ones only arguments."""

    index: int  # dense from 0 within its choice
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token with its log-probability in nats (<= 0) and the alternatives asked for."""

    token_id: int
    token: str
    token_bytes: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Timings:
    """The engine's own times for a request, in seconds."""

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


@value
class EngineDelta:
    """One increment of one choice; token counts are running totals of that choice, not increments."""

    choice_index: int = 0
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallFragment, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    parser_failure: str | None = None  # set once, when a native parser raised and plain text follows
    timings: Timings | None = None  # with the last delta of the request
    more_follows: bool = False  # another delta of the request is there already, and comes without any wait


@value
class Usage:
    """Token counts of a request over all its choices."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int | None = None

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens
