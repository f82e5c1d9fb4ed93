# SPDX-License-Identifier: MIT
"""The typed events of one request, in the order a peer sees them. Exactly one terminal ends each stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chatdelta.deltas import TokenLogprob, Usage
from chatdelta.errors import ErrorInfo
from chatdelta.value import value


@value
class TextDelta:
    choice_index: int
    text: str


@value
class ReasoningDelta:
    choice_index: int
    text: str


@dataclass(frozen=True, slots=True)
class LogprobsDelta:
    """Log-probabilities of every token, in order of generation: of reasoning and of markup, too."""

    choice_index: int
    entries: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    choice_index: int
    index: int
    item_id: str
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    choice_index: int
    index: int
    item_id: str
    call_id: str
    arguments_delta: str


@dataclass(frozen=True, slots=True)
class ToolCallCompleted:
    choice_index: int
    index: int
    item_id: str
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallFailed:
    """The call was started and will not be completed; `error` says why."""

    choice_index: int
    index: int
    item_id: str
    call_id: str
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The final counts, once, right before a successful terminal."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Completed:
    """Terminal: success. `body` is the whole OpenAI chat-completion body."""

    body: Mapping[str, Any]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Terminal: stopped on request."""

    reason: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failed:
    """Terminal: an error."""

    error: ErrorInfo
    usage: Usage


Terminal = Completed | Cancelled | Failed
StreamEvent = (
    TextDelta
    | ReasoningDelta
    | ToolCallStarted
    | ToolCallDelta
    | ToolCallCompleted
    | ToolCallFailed
    | LogprobsDelta
    | UsageReport
)
Event = StreamEvent | Terminal
