# SPDX-License-Identifier: MIT
"""One rule of the server taken away at a time: a case of that rule fails by name, and says what is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import nnrp_openai.adapter
import nnrp_openai.encoding
import nnrp_openai.envelope
from chatdelta import ReasoningDelta, StreamMapper, TextDelta, ToolCallCompleted, UsageReport
from chatdelta.toolcalls import ToolCallTracker
from nnrp_openai import ProfileHandler, capability_document
from nnrp_openai.encoding import encode_event
from nnrp_wire.operation import WireOperation
from tests.vllm_nnrp_conformance.serving import not_passed, run_cases, served
from vllm_nnrp.conformance.faults import FaultEngine
from vllm_nnrp.conformance.scripted import MODEL

pytestmark = pytest.mark.asyncio
Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Break:
    """What is taken away, the case that must notice, and a word of its finding."""

    name: str
    patch: Patch
    case: str
    finding: str
    timeout_s: float = 30.0


def no_terminal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WireOperation, "send_result", lambda *_args: None)


def two_terminals(patch: pytest.MonkeyPatch) -> None:
    send = WireOperation.send_result

    def twice(self: WireOperation, metadata: Any, body: bytes) -> None:
        live = self.state
        with pytest.MonkeyPatch.context() as open_end:
            open_end.setattr(WireOperation, "_finished", lambda *_args: None)
            send(self, metadata, body)
        assert self.state is live
        send(self, metadata, body)

    patch.setattr(WireOperation, "send_result", twice)


def feed_changed(change: Callable[[list[Any]], list[Any]]) -> Patch:
    def apply(patch: pytest.MonkeyPatch) -> None:
        feed = StreamMapper.feed
        patch.setattr(StreamMapper, "feed", lambda self, delta: change(feed(self, delta)))

    return apply


def completed_changed(change: Callable[[list[Any]], list[Any]]) -> Patch:
    def apply(patch: pytest.MonkeyPatch) -> None:
        complete = StreamMapper.complete
        patch.setattr(StreamMapper, "complete", lambda self: change(complete(self)))

    return apply


def swapped_deltas(patch: pytest.MonkeyPatch) -> None:
    """Each text delta waits for the next one, and comes after it."""
    feed = StreamMapper.feed
    waiting: list[Any] = []

    def swapped(self: StreamMapper, delta: Any) -> list[Any]:
        events = feed(self, delta)
        if len(events) == 1 and isinstance(events[0], TextDelta) and not waiting:
            waiting.extend(events)
            return []
        late, waiting[:] = list(waiting), []
        return [*events, *late]

    patch.setattr(StreamMapper, "feed", swapped)


def completed_first(patch: pytest.MonkeyPatch) -> None:
    """The tracker says that a call is complete when it has only begun."""
    feed = ToolCallTracker.feed

    def early(self: ToolCallTracker, fragment: Any) -> list[Any]:
        events = feed(self, fragment)
        started = events[0] if fragment.name else None
        if started is None:
            return events
        index, call = self._choice_index, self.calls[-1]
        return [ToolCallCompleted(index, call.index, call.item_id, call.call_id, call.name, "{}"), *events]

    patch.setattr(ToolCallTracker, "feed", early)


def encoded_as(change: Callable[[Any], Any]) -> Patch:
    """The encoder gets another event."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(
            nnrp_openai.adapter, "encode_event", lambda event, **options: encode_event(change(event), **options)
        )

    return apply


def reasoning_as_text(event: Any) -> Any:
    return TextDelta(event.choice_index, event.text) if isinstance(event, ReasoningDelta) else event


def first_choice_only(event: Any) -> Any:
    return replace(event, choice_index=0) if isinstance(event, TextDelta) else event


def cancel_ignored(patch: pytest.MonkeyPatch) -> None:
    """The carrier's word that an operation was ended does not reach it."""
    patch.setattr(WireOperation, "end", lambda _self, _ended: None)


def no_usage(patch: pytest.MonkeyPatch) -> None:
    completed_changed(lambda events: [event for event in events if not isinstance(event, UsageReport)])(patch)


def wrong_total(patch: pytest.MonkeyPatch) -> None:
    usage = nnrp_openai.encoding._usage

    def wrong(counted: Any) -> Any:
        event = usage(counted)
        event.total_tokens += 1
        return event

    patch.setattr(nnrp_openai.encoding, "_usage", wrong)


def any_token(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nnrp_openai.envelope, "check_token", lambda *_tokens: None)


def no_timeout(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProfileHandler, "_left", lambda *_args: None)


def no_choice_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        nnrp_openai.adapter,
        "encode_event",
        lambda event, **options: encode_event(event, **{**options, "many_choices": False}),
    )


def asked_changed(**body: Any) -> Patch:
    """The engine is asked something else than the client did."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        generate = FaultEngine.generate
        patch.setattr(
            FaultEngine,
            "generate",
            lambda self, request: generate(self, replace(request, body={**request.body, **body})),
        )

    return apply


def no_extensions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        nnrp_openai.adapter, "capability_document", lambda info: {**capability_document(info), "extensions": []}
    )


def anything_goes(patch: pytest.MonkeyPatch) -> None:
    """A body without messages gets some."""
    checked = nnrp_openai.envelope.checked_body
    patch.setattr(nnrp_openai.envelope, "checked_body", lambda body: checked({"messages": [{"role": "user"}], **body}))


def stream_always(patch: pytest.MonkeyPatch) -> None:
    flag = nnrp_openai.envelope.flag
    patch.setattr(nnrp_openai.envelope, "flag", lambda body, name: name == "stream" or flag(body, name))


def drop_deltas(events: list[Any]) -> list[Any]:
    return [event for event in events if type(event).__name__ != "ToolCallDelta"]


BREAKS: Sequence[Break] = (
    Break("no terminal", no_terminal, "streaming-text", "no terminal within 1 s", timeout_s=1.0),
    Break("two terminals", two_terminals, "streaming-text", "one terminal"),
    Break("deltas swapped", swapped_deltas, "text-delta-order", "order of text"),
    Break("usage missing", no_usage, "usage", "response.usage came 0 times"),
    Break("usage adds up wrongly", wrong_total, "usage", "in total"),
    Break("a call completed before it started", completed_first, "tool-call-lifecycle", "completed before started"),
    Break("a call without its deltas", feed_changed(drop_deltas), "tool-call-delta", "tool_call.delta came 0 times"),
    Break("reasoning as text", encoded_as(reasoning_as_text), "reasoning", "reasoning_text.delta came 0 times"),
    Break("choices mixed up", encoded_as(first_choice_only), "choices", "order of text"),
    Break("no choice_index", no_choice_index, "choices-with-tool-calls", "choice_index"),
    Break("CANCEL ignored", cancel_ignored, "cancellation", "not cancelled"),
    Break("ABORT ignored", cancel_ignored, "abort", "not cancelled"),
    Break("SUPERSEDE ignored", cancel_ignored, "supersede", "not cancelled"),
    Break("DEADLINE ignored", cancel_ignored, "deadline", "not cancelled"),
    Break("timeout ignored", no_timeout, "timeout", "not error"),
    Break("any token will do", any_token, "token-refused", "not error"),
    Break("a body without messages", anything_goes, "invalid-body", "not error"),
    Break("a stream nobody asked for", stream_always, "non-streaming", "without a stream"),
    Break("stop ignored", asked_changed(stop=None), "stop", "the stop string"),
    Break("max_tokens ignored", asked_changed(max_tokens=None), "max-tokens", "tokens were generated"),
    Break("schema ignored", asked_changed(response_format=None), "structured-output", "structured output"),
    Break("thinking not switched off", asked_changed(chat_template_kwargs={}), "reasoning-off", "thinking is off"),
    Break("the document claims nothing", no_extensions, "capability-document", "the document does not"),
    Break("the fault model answers", asked_changed(model=MODEL), "backend-error", "not error"),
)


@pytest.mark.parametrize("row", BREAKS, ids=[row.name for row in BREAKS])
async def test_a_broken_rule_fails_its_case(row: Break, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served("tcp", tmp_path) as target:
        whole = await run_cases(target, MODEL, row.case)
        assert not_passed(whole) == {}
        with monkeypatch.context() as patch:
            row.patch(patch)
            broken = await run_cases(target, MODEL, row.case, timeout_s=row.timeout_s)
    ((case, findings),) = not_passed(broken).items()
    assert case.endswith(f".{row.case}")
    assert any(row.finding in finding for finding in findings), findings
