# SPDX-License-Identifier: MIT
"""/v1/messages, Anthropic's API. Nothing of it says that an answer was cut: it ends with a turn or with a call."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.localai_core.ask import Ask, predict_options_with_prompt
from tests.localai_core.attempts import Backend, compute
from tests.localai_core.deltas import calls_of, content_of, reasoning_of
from tests.localai_core.json_calls import calls_in
from tests.localai_core.replies import Response, Step
from tests.localai_core.shown import Call, Shown

CALL_ID = "toolu_message"


def anthropic(backend: Backend, ask: Ask, *, thinking: bool = True) -> Shown:
    """Text from `message` alone, and none beside calls. `thinking`: the user asked for thinking blocks."""
    outcome = compute(backend, predict_options_with_prompt(ask))
    response = outcome.response
    calls = calls_of(response.deltas) or calls_in(response.text) if ask.expects_calls else []
    shown = Shown("" if calls else response.text, reasoning_of(response.deltas) if thinking else "")
    shown.calls = [_with_id(call, index) for index, call in enumerate(calls)]
    return _ended(shown, response, outcome.attempts)


def anthropic_stream(backend: Backend, ask: Ask, *, thinking: bool = True) -> Shown:
    """Text from `message` as it comes; where there was none, that of the deltas at the end, all at once.

    Reasoning is shown before calls only, never before text.
    """
    stream = _Stream(expects_calls=ask.expects_calls)
    outcome = compute(backend, predict_options_with_prompt(ask), on_step=stream.step)
    stream.finish(outcome.response, thinking=thinking)
    return _ended(stream.shown, outcome.response, outcome.attempts)


@dataclass(slots=True)
class _Stream:
    expects_calls: bool
    shown: Shown = field(default_factory=Shown)
    message: str = ""

    def step(self, step: Step) -> None:
        """Calls that core finds in the message end the text."""
        self.message += step.text
        if self.expects_calls:
            found = calls_in(self.message)[len(self.shown.calls) :]
            for call in found:
                self._show_call(call)
            if found:
                return
        if step.text and not self.shown.calls:
            self.shown.show_text(step.text)

    def finish(self, response: Response, *, thinking: bool) -> None:
        text, calls = content_of(response.deltas), calls_of(response.deltas)
        if text and not self.message and not self.shown.calls:
            self.shown.show_text(text)
        if calls and not self.shown.calls:
            reasoning = reasoning_of(response.deltas)
            if thinking and reasoning:
                self.shown.show_reasoning(reasoning)
            for call in calls:
                self._show_call(call)

    def _show_call(self, call: Call) -> None:
        self.shown.show_call(_with_id(call, len(self.shown.calls)))


def _with_id(call: Call, index: int) -> Call:
    return replace(call, id=call.id or f"{CALL_ID}_{index}")


def _ended(shown: Shown, response: Response, attempts: int) -> Shown:
    shown.usage, shown.attempts = response.usage, attempts
    shown.finish_reason = "tool_use" if shown.calls else "end_turn"
    return shown
