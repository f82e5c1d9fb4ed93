# SPDX-License-Identifier: MIT
"""The life of the tool calls of one choice: started once, argument deltas, then completed or failed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from chatdelta.deltas import FinishReason, ToolCallFragment
from chatdelta.errors import BackendFailure, ErrorInfo
from chatdelta.events import StreamEvent, ToolCallCompleted, ToolCallDelta, ToolCallFailed, ToolCallStarted


@dataclass(slots=True)
class ToolCall:
    """One call as far as it has come; `arguments` are joined once, at its end."""

    index: int
    item_id: str
    call_id: str
    name: str
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class ToolCallTracker:
    """Guards the ordering rules of one choice. A call ends when the next one starts or when the choice ends."""

    def __init__(self, choice_index: int, response_id: str) -> None:
        self._choice_index = choice_index
        self._item_prefix = f"item-{response_id}-{choice_index}"
        self._open: ToolCall | None = None
        self.calls: list[ToolCall] = []

    def feed(self, fragment: ToolCallFragment) -> list[StreamEvent]:
        """Events of one fragment. Raises BackendFailure where the engine breaks its own order."""
        events: list[StreamEvent] = []
        if fragment.index == len(self.calls):
            if not fragment.id or not fragment.name:
                raise BackendFailure("the engine started a tool call without id or name")
            if self._open is not None:
                events.extend(self._end(self._open, FinishReason.TOOL_CALLS))
            call = ToolCall(fragment.index, f"{self._item_prefix}-{fragment.index}", fragment.id, fragment.name)
            self.calls.append(call)
            self._open = call
            events.append(ToolCallStarted(self._choice_index, call.index, call.item_id, call.call_id, call.name))
        if self._open is None or fragment.index != self._open.index:
            raise BackendFailure("the engine went back to a tool call that was already ended")
        if fragment.arguments:
            events.append(self._delta(self._open, fragment.arguments))
        return events

    def finish(self, reason: FinishReason) -> list[StreamEvent]:
        """End the open call for the choice's `reason`; a call cut by the token limit fails unless it is whole."""
        if self._open is None or reason in (FinishReason.ABORT, FinishReason.ERROR):
            return []  # the stream's terminal abandons it
        call, self._open = self._open, None
        return self._end(call, reason)

    def abandon(self, error: ErrorInfo) -> list[StreamEvent]:
        """Fail the open call, if any."""
        if self._open is None:
            return []
        call, self._open = self._open, None
        return [ToolCallFailed(self._choice_index, call.index, call.item_id, call.call_id, error)]

    def _end(self, call: ToolCall, reason: FinishReason) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if not call.pieces and reason is not FinishReason.LENGTH:
            events.append(self._delta(call, "{}"))  # a call without arguments still sends an object
        if is_json_object(call.arguments):
            events.append(
                ToolCallCompleted(self._choice_index, call.index, call.item_id, call.call_id, call.name, call.arguments)
            )
            return events
        if reason is FinishReason.LENGTH:
            error = BackendFailure("the token limit cut this tool call (finish_reason length)", code="length")
        else:
            error = BackendFailure("the arguments of this tool call are not a JSON object", code="invalid_arguments")
        events.append(ToolCallFailed(self._choice_index, call.index, call.item_id, call.call_id, error.info()))
        return events

    def _delta(self, call: ToolCall, arguments: str) -> ToolCallDelta:
        call.pieces.append(arguments)
        return ToolCallDelta(self._choice_index, call.index, call.item_id, call.call_id, arguments)


def is_json_object(text: str) -> bool:
    """Whether `text` is one whole JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
