# SPDX-License-Identifier: MIT
"""What a client sees of an answer. Both transports yield these, in order, and exactly one `Ending` last."""

from __future__ import annotations

from dataclasses import dataclass

USER_CANCELLED = "user_cancelled"  # the reason of a Cancelled that the server, or its wire, confirmed


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    index: int
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """The next piece of the call's JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDone:
    index: int
    call_id: str
    name: str
    arguments: str  # JSON text, whole


@dataclass(frozen=True, slots=True)
class ToolCallError:
    """The call was started and will not be completed."""

    index: int
    call_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The final counts; `completion_tokens` includes the reasoning."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is whole. `finish_reason` in OpenAI's words: stop, length or tool_calls."""

    finish_reason: str


@dataclass(frozen=True, slots=True)
class Error:
    """The request failed; what came before may be incomplete. `code` is the server's, or one of ours."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """We asked for the end."""

    reason: str


Ending = Done | Error | Cancelled
ClientEvent = Text | Reasoning | ToolCallStart | ToolCallArguments | ToolCallDone | ToolCallError | Usage | Ending
