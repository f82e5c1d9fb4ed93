# SPDX-License-Identifier: MIT
"""/v1/chat/completions with `stream: true`. Log-probabilities are never shown there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.localai_core.ask import NO_ACTION, Ask, predict_options
from tests.localai_core.attempts import Backend, budget_is_spent, compute
from tests.localai_core.chat import message_of
from tests.localai_core.deltas import calls_of, content_of, reasoning_of
from tests.localai_core.json_calls import calls_in, calls_so_far
from tests.localai_core.reasoning import Extractor, start_tag_in
from tests.localai_core.replies import Response, Step
from tests.localai_core.shown import REQUEST_ID, Call, Shown


def chat_stream(backend: Backend, ask: Ask) -> Shown:
    """What the chunks of one streamed answer show."""
    options, shown = predict_options(ask), Shown()
    if ask.expects_calls:
        stream = _StreamWithTools(shown, start_tag_in(ask.prompt))
        outcome = compute(backend, options, on_step=stream.step, should_retry=stream.should_retry)
        stream.finish(outcome.response)
    else:
        outcome = compute(backend, options, on_step=_PlainStream(shown, start_tag_in(ask.prompt)).step)
    shown.usage, shown.attempts = outcome.response.usage, outcome.attempts
    if shown.calls:
        shown.finish_reason = "tool_calls"
    elif budget_is_spent(shown.usage.completion_tokens, ask.max_tokens):
        shown.finish_reason = "length"
    return shown


class _PlainStream:
    """Without tools: the message, split by its tags, until a delta has reasoning; from then on the deltas."""

    def __init__(self, shown: Shown, start_tag: str) -> None:
        self._shown = shown
        self._extractor = Extractor(start_tag)
        self._trusts_deltas = False

    def step(self, step: Step) -> None:
        reasoning, text = self._extractor.feed(step.text)
        if step.reasoning:
            self._trusts_deltas = True
        if self._trusts_deltas and (step.content or step.reasoning):
            reasoning, text = self._extractor.feed_reasoning_delta(step.reasoning), step.content
        if reasoning:
            self._shown.show_reasoning(reasoning)
        if text:
            self._shown.show_text(text)


class _StreamWithTools:
    """With tools: the message until a delta has content or reasoning; calls from the deltas, at the end.

    Until a delta has a call, core looks for calls in the message as well, shows what it takes for one at once, and
    shows no text after it.
    """

    def __init__(self, shown: Shown, start_tag: str) -> None:
        self._shown = shown
        self._extractor = Extractor(start_tag)
        self._trusts_deltas = False
        self._showed_reasoning = False
        self._clear()

    def _clear(self) -> None:
        self._message = ""
        self._emitted = 0
        self._showed_text = False
        self._had_delta_calls = self._had_delta_content = False

    def step(self, step: Step) -> None:
        self._message += step.text
        self._had_delta_calls |= any(delta.tool_calls for delta in step.deltas)
        self._had_delta_content |= bool(step.content)
        reasoning, text = self._extractor.feed(step.text)
        if step.content or step.reasoning:
            self._trusts_deltas = True
            reasoning, text = self._extractor.feed_reasoning_delta(step.reasoning), step.content
        elif self._trusts_deltas:
            reasoning = text = ""
        if reasoning:
            self._show_reasoning(reasoning)
        if text and not self._emitted:
            self._show_text(text)
        if not self._had_delta_calls:
            for call in calls_so_far(self._message)[self._emitted :]:
                self._shown.show_call(replace(call, id=REQUEST_ID))
                self._emitted += 1

    def should_retry(self) -> bool:
        if self._extractor.content or self._had_delta_content or self._emitted or self._had_delta_calls:
            return False
        self._extractor.clear_and_hide_reasoning()
        self._clear()
        return True

    def finish(self, response: Response) -> None:
        calls = calls_of(response.deltas)
        if calls:
            text, reasoning = content_of(response.deltas), reasoning_of(response.deltas)
        else:
            text = ""
            reasoning = reasoning_of(response.deltas) if self._trusts_deltas else self._extractor.reasoning
            calls = calls_in(self._extractor.content)
        if any(call.name != NO_ACTION for call in calls):
            self._flush(calls, text, reasoning)
        else:
            if reasoning and not self._showed_reasoning:
                self._show_reasoning(reasoning)
            if not self._showed_text:
                self._show_text(message_of(calls, self._extractor.content))

    def _flush(self, calls: Sequence[Call], text: str, reasoning: str) -> None:
        late = list(enumerate(calls))[self._emitted :]
        if late and reasoning and not self._showed_reasoning:
            self._show_reasoning(reasoning)
        if late and text and not self._showed_text:
            self._show_text(text)
        for index, call in late:
            self._shown.show_call(replace(call, id=call.id or f"{REQUEST_ID}-{index}"))

    def _show_reasoning(self, text: str) -> None:
        self._shown.show_reasoning(text)
        self._showed_reasoning = True

    def _show_text(self, text: str) -> None:
        self._shown.show_text(text)
        self._showed_text = True
