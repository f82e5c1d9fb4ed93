# SPDX-License-Identifier: MIT
"""/v1/responses, the Open Responses API. A stream has two ends: what came, and the whole answer at its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.localai_core.ask import NO_ACTION, Ask, predict_options_with_prompt
from tests.localai_core.attempts import Backend, Outcome, compute
from tests.localai_core.chat import message_of
from tests.localai_core.deltas import calls_of, content_of, reasoning_of
from tests.localai_core.json_calls import calls_in, json_objects, named_call, tag_names
from tests.localai_core.reasoning import Extractor, split_complete, start_tag_in
from tests.localai_core.replies import Response, Step
from tests.localai_core.shown import Call, Shown


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """What the events of a stream showed, and the items of the answer in its last event."""

    streamed: Shown
    completed: Shown


def responses(backend: Backend, ask: Ask) -> Shown:
    """Without streaming: text and reasoning from `message`; the deltas count where they have calls."""
    outcome = compute(backend, predict_options_with_prompt(ask))
    response = outcome.response
    reasoning, message = split_complete(response.text, start_tag_in(ask.prompt))
    shown = Shown(message, reasoning, usage=response.usage, attempts=outcome.attempts)
    if ask.expects_calls:
        calls = calls_of(response.deltas)
        text = content_of(response.deltas) if calls else ""
        shown.text, shown.calls = _without_no_action(calls or calls_in(message), text)
        shown.text = shown.text or message
    return shown


def responses_stream(backend: Backend, ask: Ask) -> StreamedResponse:
    stream = _Stream(start_tag_in(ask.prompt), expects_calls=ask.expects_calls)
    outcome = compute(backend, predict_options_with_prompt(ask), on_step=stream.step)
    answer = StreamedResponse(stream.shown, stream.finish(outcome))
    for shown in (answer.streamed, answer.completed):
        shown.usage, shown.attempts = outcome.response.usage, outcome.attempts
    return answer


@dataclass(slots=True)
class _Stream:
    """Reasoning is shown only where core's own tags found it; reasoning of deltas alone never is."""

    start_tag: str
    expects_calls: bool = field(kw_only=True)
    shown: Shown = field(default_factory=Shown)
    message: str = ""
    emitted: int = 0
    is_closed: bool = False
    extractor: Extractor = field(init=False)

    def __post_init__(self) -> None:
        self.extractor = Extractor(self.start_tag)

    def step(self, step: Step) -> None:
        self.message += step.text
        if self.expects_calls and self._found_calls():
            return  # and the text of this step is lost
        if self.is_closed:
            return
        reasoning, text = self.extractor.feed(step.text)
        if step.content or step.reasoning:
            reasoning, text = self.extractor.feed_reasoning_delta(step.reasoning), step.content
        if reasoning and self.extractor.reasoning:
            self.shown.show_reasoning(reasoning)
        if text:
            self.shown.show_text(text)

    def _found_calls(self) -> bool:
        """Show what is new in the message: calls by tags, after which no text comes, else objects, named or not."""
        names = tag_names(self.message)
        if len(names) > self.emitted:
            self.is_closed = bool(self.shown.text)
            for name in names[self.emitted :]:
                self.shown.show_call(Call("", name, ""))
            self.emitted = len(names)
            return True
        objects = json_objects(self.message, is_partial=True)
        if len(objects) > self.emitted:
            for call in map(named_call, objects[self.emitted :]):
                if call is not None:
                    self.shown.show_call(call)
            self.emitted = len(objects)
            return True
        return False

    def finish(self, outcome: Outcome) -> Shown:
        """Flush the calls; the items of the whole answer."""
        reasoning, text = self._whole(outcome.response)
        calls: list[Call] = []
        if self.expects_calls:
            calls = calls_of(outcome.response.deltas)
            message = content_of(outcome.response.deltas) if calls else ""
            message, calls = _without_no_action(calls or calls_in(text), message)
            text = message or ("" if calls else text)
            for call in calls[self.emitted :]:
                self.shown.show_call(call)
        has_message = bool(self.shown.text) or not self.expects_calls
        return Shown(text if has_message else "", reasoning if self.extractor.reasoning else "", calls)

    def _whole(self, response: Response) -> tuple[str, str]:
        if reasoning := reasoning_of(response.deltas):
            return reasoning, content_of(response.deltas) or self.extractor.content
        if self.extractor.reasoning or self.extractor.content:
            return self.extractor.reasoning, self.extractor.content
        return split_complete(response.text, self.start_tag)


def _without_no_action(calls: list[Call], text: str) -> tuple[str, list[Call]]:
    """The text, perhaps that of the no-action function, and the real calls."""
    for call in calls:
        if call.name == NO_ACTION:
            text = message_of([call], "") or text
    return text, [call for call in calls if call.name != NO_ACTION]
