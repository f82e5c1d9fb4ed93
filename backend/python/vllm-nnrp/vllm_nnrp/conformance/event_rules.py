# SPDX-License-Identifier: MIT
"""The profile's rules for the events of any case: one terminal, known events of the right shape, calls that live once.

Each rule is a function of what was asked and what was seen, and says in words what is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from vllm_nnrp.conformance.models import Case, Json
from vllm_nnrp.conformance.observed import PARTIAL, TERMINAL_EVENTS, TERMINAL_FRAMES, Observed, kind_of

_Kind = type | tuple[type, ...]
_CALL: dict[str, _Kind] = {"index": int, "item_id": str, "call_id": str}
SHAPES: Mapping[str, Mapping[str, _Kind]] = {
    "response.output_text.delta": {"index": int, "delta": str},
    "response.tool_call.started": {**_CALL, "name": str},
    "response.tool_call.delta": {**_CALL, "arguments_delta": str},
    "response.tool_call.completed": {**_CALL, "name": str, "arguments": str},
    "response.tool_call.error": {**_CALL, "error": dict},
    "response.usage": {"usage": dict},
    "response.completed": {"body": dict},
    "response.error": {"error": dict},
    "response.cancelled": {"reason": str},
}
# An extension that brings an event of its own: what a manifest calls it, and the event.
EXTENSION_EVENTS = {
    "response.reasoning_text.delta": "response.reasoning_text.delta",
    "response.logprobs.delta": "response.logprobs.delta",
    "vllm.diagnostics": "response.diagnostics",
}
EXTENSION_SHAPES: Mapping[str, Mapping[str, _Kind]] = {
    "response.reasoning_text.delta": {"index": int, "delta": str},
    "response.logprobs.delta": {"index": int, "content": list},
    "response.diagnostics": {"diagnostics": dict},
}
NOT_EMPTY = ("item_id", "call_id", "name")
USAGE_FIELDS = ("input_tokens", "output_tokens", "total_tokens")
ERROR_FIELDS = ("type", "code", "message")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rule may know beside the answer: the case, and the extensions that its manifest declares."""

    case: Case
    extensions: frozenset[str] = frozenset()

    @property
    def body(self) -> Json:
        return self.case.request.body

    @property
    def nnrp(self) -> Json:
        return self.case.request.nnrp or {}

    @property
    def is_stream(self) -> bool:
        return self.body.get("stream") is True

    @property
    def choices(self) -> int:
        n = self.body.get("n")
        return n if isinstance(n, int) else 1

    @property
    def stream_options(self) -> Json:
        options = self.body.get("stream_options")
        return options if isinstance(options, dict) else {}


Rule = Callable[[Asked, Observed], Iterator[str]]


def one_terminal(_asked: Asked, observed: Observed) -> Iterator[str]:
    """Exactly one terminal frame, and nothing after it; a terminal event only in a terminal frame."""
    yield from observed.problems
    received = list(observed.received)
    terminals = [position for position, frame in enumerate(received) if frame.is_terminal]
    if len(terminals) != 1:
        yield f"{len(terminals)} terminal frames, not 1"
    late = received[terminals[0] + 1 :] if terminals else []
    yield from (
        f"{frame.frame} came after the terminal" for frame in late if frame.frame in (PARTIAL, *TERMINAL_FRAMES)
    )
    for frame in received:
        kind = "" if frame.event is None else kind_of(frame.event)
        if frame.frame == PARTIAL and kind in TERMINAL_EVENTS and kind != "response.cancelled":
            yield f"{kind} came in a PARTIAL_RESULT"


def known_events(asked: Asked, observed: Observed) -> Iterator[str]:
    """Every event is the contract's or a declared extension's, with its fields."""
    declared = {EXTENSION_EVENTS[name] for name in asked.extensions & EXTENSION_EVENTS.keys()}
    shapes = {**SHAPES, **{kind: EXTENSION_SHAPES[kind] for kind in declared}}
    for event in observed.events:
        kind = kind_of(event)
        if kind not in shapes:
            yield f"{kind or 'an event without a type'} is neither the contract's nor a declared extension's"
            continue
        for name, wanted in shapes[kind].items():
            if not _is(event.get(name), wanted):
                yield f"{kind}: {name} is missing or of the wrong kind"
            elif name == "index" and event[name] < 0:
                yield f"{kind}: index is negative"
            elif name in NOT_EMPTY and not event[name]:
                yield f"{kind}: {name} is empty"
        yield from _inner(event)


def _inner(event: Json) -> Iterator[str]:
    """The fields of `error` and `usage`."""
    kind, error, usage = kind_of(event), event.get("error"), event.get("usage")
    if isinstance(error, dict) and not all(_is(error.get(name), str) and error[name] for name in ERROR_FIELDS):
        yield f"{kind}: an error has {', '.join(ERROR_FIELDS)}, none empty"
    if isinstance(usage, dict):
        counts = [usage.get(name) for name in USAGE_FIELDS]
        if not all(_is(count, int) for count in counts):
            yield f"{kind}: usage has {', '.join(USAGE_FIELDS)}, each a count"
        elif counts[0] + counts[1] != counts[2] or min(counts) < 0:  # type: ignore[operator, type-var]
            yield f"{kind}: {counts[0]} input and {counts[1]} output tokens are not {counts[2]} in total"


def _is(value: Any, kind: _Kind) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(slots=True)
class _Call:
    """One call, by its call_id."""

    started: Json | None = None
    pieces: list[str] = field(default_factory=list)
    ended: str | None = None


def tool_call_life(_asked: Asked, observed: Observed) -> Iterator[str]:
    """Started once and first, deltas, then completed or failed once; completed arguments are the deltas joined."""
    calls: dict[str, _Call] = {}
    for event in observed.of(*(kind for kind in SHAPES if "tool_call" in kind)):
        step, call_id = kind_of(event).rpartition(".")[2], str(event.get("call_id"))
        call = calls.setdefault(call_id, _Call())
        if step == "started":
            if call.started is not None:
                yield f"call {call_id} was started twice"
            call.started = call.started or event
            continue
        if call.started is None:
            yield f"call {call_id}: {step} before started"
        elif any(event.get(name) != call.started.get(name) for name in ("index", "item_id", "choice_index")):
            yield f"call {call_id}: {step} has another index, item_id or choice_index than started"
        if call.ended:
            yield f"call {call_id}: {step} after {call.ended}"
        if step == "delta":
            call.pieces.append(str(event.get("arguments_delta")))
            continue
        call.ended = step
        if step == "completed" and event.get("arguments") != "".join(call.pieces):
            yield f"call {call_id}: the completed arguments are not the deltas joined"
        if step == "completed" and call.started is not None and event.get("name") != call.started.get("name"):
            yield f"call {call_id}: completed with another name"
    if observed.terminal is not None:
        yield from (f"call {call_id} was started and never ended" for call_id, call in calls.items() if not call.ended)


def usage_events(asked: Asked, observed: Observed) -> Iterator[str]:
    """One before the terminal of a stream that asked for it, growing ones where it asked for them, else none."""
    usages = observed.of("response.usage")
    wanted = asked.is_stream and asked.stream_options.get("include_usage") is True
    if not wanted:
        if usages:
            yield "response.usage came unasked"
        return
    if observed.terminal_kind != "success":
        return
    if not usages:
        yield "response.usage was asked for and did not come"
        return
    if len(usages) > 1 and asked.stream_options.get("continuous_usage_stats") is not True:
        yield f"response.usage came {len(usages)} times, not once"
    kinds = [kind_of(event) for event in observed.events]
    after = kinds[len(kinds) - kinds[::-1].index("response.usage") :]
    if not {*after} <= {"response.diagnostics", "response.completed"}:
        yield f"{after[0]} came after the last response.usage"
    totals = [_count(event, "output_tokens") for event in usages]
    if any(before > after for before, after in pairwise(totals)):
        yield "the counts of response.usage shrink"


def _count(event: Json, name: str) -> int:
    usage = event.get("usage")
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) else 0


def no_stream(asked: Asked, observed: Observed) -> Iterator[str]:
    """Without `stream` there is the terminal, and before it diagnostics at most."""
    if not asked.is_stream:
        kinds = {kind_of(frame.event) for frame in observed.received if frame.frame == PARTIAL and frame.event}
        yield from (f"{kind} came without a stream" for kind in sorted(kinds - {"response.diagnostics"}))


def asked_for(asked: Asked, observed: Observed) -> Iterator[str]:
    """What has to be asked for does not come by itself, and reasoning not where thinking is off."""
    kwargs = asked.body.get("chat_template_kwargs")
    thinking_is_off = isinstance(kwargs, dict) and kwargs.get("enable_thinking") is False
    if thinking_is_off and observed.of("response.reasoning_text.delta"):
        yield "reasoning came although thinking is off"
    if asked.body.get("logprobs") is not True and observed.of("response.logprobs.delta"):
        yield "response.logprobs.delta came unasked"
    if asked.nnrp.get("diagnostics") is not True and observed.of("response.diagnostics"):
        yield "response.diagnostics came unasked"
    if asked.nnrp.get("openai_chunk") is not True and any("openai_chunk" in event for event in observed.events):
        yield "openai_chunk came unasked"
    names_choices = asked.choices > 1 and "choice_index" in asked.extensions
    calls = [event for event in observed.events if "tool_call" in kind_of(event)]
    if names_choices and any("choice_index" not in event for event in calls):
        yield "a tool call of one of several choices has no choice_index"


RULES: Mapping[str, Rule] = {
    "one terminal": one_terminal,
    "known events": known_events,
    "life of a tool call": tool_call_life,
    "usage": usage_events,
    "no stream": no_stream,
    "only what was asked for": asked_for,
}
