# SPDX-License-Identifier: MIT
"""Engine deltas in, typed events out: the one state machine both listeners share. No I/O, no clock, no await."""

from __future__ import annotations

from collections.abc import Sequence

from chatdelta.body import ChoiceBody, ResponseHead, completion_body
from chatdelta.deltas import EngineDelta, FinishReason, TokenLogprob, Usage
from chatdelta.errors import BackendError, BackendFailure, ErrorInfo
from chatdelta.events import (
    Cancelled,
    Completed,
    Event,
    Failed,
    LogprobsDelta,
    ReasoningDelta,
    StreamEvent,
    Terminal,
    TextDelta,
    UsageReport,
)
from chatdelta.toolcalls import ToolCallTracker


class StreamMapper:
    """Turn one request's engine deltas into events, and assemble the whole body beside them.

    feed() any number of times, then exactly one of complete(), fail() or cancel(); anything after that is our own bug
    and raises RuntimeError.
    """

    def __init__(self, head: ResponseHead, *, n: int = 1) -> None:
        self._head = head
        self._bodies = [ChoiceBody(index) for index in range(n)]
        self._trackers = [ToolCallTracker(index, head.id) for index in range(n)]
        self._prompt_tokens = 0
        self._cached_tokens: int | None = None
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    @property
    def usage(self) -> Usage:
        """The counts so far, over all choices."""
        if len(self._bodies) == 1:  # without the sums: this runs once per token
            body = self._bodies[0]
            return Usage(self._prompt_tokens, body.completion_tokens, body.reasoning_tokens, self._cached_tokens)
        return Usage(
            self._prompt_tokens,
            sum(body.completion_tokens for body in self._bodies),
            sum(body.reasoning_tokens for body in self._bodies),
            self._cached_tokens,
        )

    def logprobs(self, choice_index: int = 0) -> Sequence[TokenLogprob]:
        """Every token's log-probability so far, in order of generation."""
        return self._bodies[choice_index].logprobs

    def feed(self, delta: EngineDelta) -> list[StreamEvent]:
        """The events of one increment, in the order reasoning, text, tool calls, log-probabilities."""
        self._require_open("feed")
        index = delta.choice_index
        body, tracker = self._bodies[index], self._trackers[index]
        self._prompt_tokens = delta.prompt_tokens or self._prompt_tokens
        if delta.cached_tokens is not None:
            self._cached_tokens = delta.cached_tokens
        body.add(delta)
        events: list[StreamEvent] = []
        if delta.reasoning:
            events.append(ReasoningDelta(index, delta.reasoning))
        if delta.content:
            events.append(TextDelta(index, delta.content))
        for fragment in delta.tool_calls:
            events.extend(tracker.feed(fragment))
        if delta.logprobs:
            events.append(LogprobsDelta(index, delta.logprobs))
        if delta.finish_reason is not None:
            events.extend(tracker.finish(delta.finish_reason))
        return events

    def complete(self) -> list[Event]:
        """The end of the engine's stream: success if every choice finished, else a failure of the engine."""
        reasons = [body.finish_reason for body in self._bodies]
        if FinishReason.ERROR in reasons:
            return self.fail(BackendFailure("the engine failed this request"))
        if FinishReason.ABORT in reasons:
            return self.cancel("aborted by the engine")
        if None in reasons:
            return self.fail(BackendFailure("the engine ended the stream before the answer was finished"))
        self._require_open("complete")
        usage = self.usage
        choices = [body.message(tracker.calls) for body, tracker in zip(self._bodies, self._trackers, strict=True)]
        body = completion_body(self._head, choices, usage)
        return [UsageReport(usage), *self._close([], Completed(body, usage))]

    def fail(self, error: BackendError) -> list[Event]:
        """Close what is open and end with `Failed`."""
        self._require_open("fail")
        info = error.info()
        return self._close(self._abandon(info), Failed(info, self.usage))

    def cancel(self, reason: str) -> list[Event]:
        """Close what is open and end with `Cancelled`."""
        self._require_open("cancel")
        info = BackendFailure("the request was cancelled", code="cancelled").info()
        return self._close(self._abandon(info), Cancelled(reason, self.usage))

    def _abandon(self, error: ErrorInfo) -> list[StreamEvent]:
        return [event for tracker in self._trackers for event in tracker.abandon(error)]

    def _close(self, events: list[StreamEvent], terminal: Terminal) -> list[Event]:
        self._done = True
        return [*events, terminal]

    def _require_open(self, call: str) -> None:
        if self._done:
            raise RuntimeError(f"StreamMapper.{call}() after the terminal event")
