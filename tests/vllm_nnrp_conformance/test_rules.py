# SPDX-License-Identifier: MIT
"""Each rule of the profile: what keeps to it, and every way to break it, as a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.vllm_nnrp_conformance.documents import MANIFEST, without
from tests.vllm_nnrp_conformance.seeing import (
    EXTENSIONS,
    asked,
    call,
    called,
    choice,
    completed,
    event,
    reasoning,
    seen,
    text,
    usage,
)
from vllm_nnrp.conformance.answer_rules import RULES, broken_rules
from vllm_nnrp.conformance.event_rules import Asked
from vllm_nnrp.conformance.observed import DROP, PARTIAL, PUSH, Observed, Seen

WITH_USAGE = asked(stream_options={"include_usage": True})
CONTINUOUS = asked(stream_options={"include_usage": True, "continuous_usage_stats": True})
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x"]}, "b": {}}, "required": ["a", "b"]}
STRUCTURED = asked(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}})
CAPABILITIES = asked(operation="capabilities.get")
DOCUMENT: dict[str, Any] = {
    **without(MANIFEST, "adapter"),
    "models": [{"id": "m"}],
    "extensions": [{"name": name, "critical": False} for name in sorted(EXTENSIONS)],
}
ERROR = event("error", error={"type": "t", "code": "c", "message": "m"})
CANCELLED = event("cancelled", reason="r")
WHOLE_CALL = (call("started"), call("delta", arguments_delta="{"), call("delta", arguments_delta="}"))
DROPPED = Observed((Seen(PARTIAL, 0, text("a")), Seen(DROP, 0, CANCELLED, {"drop_reason_code": 3})))

KEPT: dict[str, tuple[Asked, Observed]] = {
    "text": (asked(), seen(text("a"), text("b"), completed(choice("ab")))),
    "nothing said": (asked(), seen(completed(choice(None)))),
    "reasoning": (asked(), seen(reasoning("r"), text("a"), completed(choice("a", message={"reasoning": "r"})))),
    "usage": (WITH_USAGE, seen(text("a"), usage(), completed(choice("a")))),
    "usage and diagnostics": (
        asked(stream_options={"include_usage": True}, nnrp={"diagnostics": True}),
        seen(text("a"), usage(), event("diagnostics", diagnostics={}), completed(choice("a"))),
    ),
    "usage all along": (
        CONTINUOUS,
        seen(usage(output_tokens=1, total_tokens=3), text("a"), usage(), completed(choice("a"))),
    ),
    "usage of a request that failed": (WITH_USAGE, seen(text("a"), ERROR)),
    "a call": (asked(), seen(*WHOLE_CALL, call("completed", arguments="{}"), completed(called("{}")))),
    "two calls, interleaved": (
        asked(),
        seen(
            call("started", "c"), call("started", "d", index=1), call("delta", "d", index=1, arguments_delta="{}"),
            call("delta", "c", arguments_delta="{}"), call("completed", "c", arguments="{}"),
            call("completed", "d", index=1, arguments="{}"), ERROR,
        ),
    ),
    "a call that failed": (
        asked(),
        seen(*WHOLE_CALL, call("error", error=ERROR["error"]), completed(called("{}"))),
    ),
    "two choices": (
        asked(n=2),
        seen(text("a"), text("b", 1), text("c"), completed(choice("ac"), choice("b", 1))),
    ),
    "a call of a second choice": (
        asked(n=2),
        seen(call("started", choice_index=1), call("completed", arguments="", choice_index=1), ERROR),
    ),
    "no stream": (asked(stream=False), seen(completed())),
    "diagnostics without a stream": (
        asked(stream=False, nnrp={"diagnostics": True}),
        seen(event("diagnostics", diagnostics={}), completed()),
    ),
    "a drop": (asked(), DROPPED),
    "the event before the drop": (
        asked(),
        Observed((Seen(PARTIAL, 0, CANCELLED), Seen(DROP, 0, None, {"drop_reason_code": 3}))),
    ),
    "a trace before the drop": (asked(), Observed((Seen("TRACE_CONTEXT", 0), *DROPPED.frames))),
    "the schema": (STRUCTURED, seen(text('{"a": "x", "b": 1}'), completed(choice('{"a": "x", "b": 1}')))),
    "stopped": (asked(stop=["b"]), seen(text("a"), completed(choice("a")))),
    "the limit": (asked(max_tokens=3), seen(completed())),
    "the document": (CAPABILITIES, seen(event("completed", body=DOCUMENT))),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "observed"), KEPT.values(), ids=KEPT.keys())
def test_kept(request_: Asked, observed: Observed) -> None:
    assert broken_rules(request_, observed) == []


def late(frame: str, observed: Observed) -> Observed:
    """One more frame in the end."""
    return replace(observed, frames=(*observed.frames, Seen(frame, 0, text("late"))))


FINE = seen(text("a"), completed(choice("a")))
ONE_TERMINAL: dict[str, tuple[Observed, str]] = {
    "none": (Observed((Seen(PARTIAL, 0, text("a")),)), "0 terminal frames, not 1"),
    "two": (late(PUSH, FINE), "2 terminal frames, not 1"),
    "a drop after the result": (late(DROP, FINE), "RESULT_DROP_REASON came after the terminal"),
    "a partial after it": (late(PARTIAL, FINE), "PARTIAL_RESULT came after the terminal"),
    "what the library refused": (replace(FINE, problems=("refused",)), "refused"),
    "completed in a partial": (seen(completed(), completed()), "response.completed came in a PARTIAL_RESULT"),
}
KNOWN_EVENTS: dict[str, tuple[Observed, str]] = {
    "unknown": (seen(event("thought"), ERROR), "response.thought is neither the contract's nor a declared extension's"),
    "without a type": (
        seen({"delta": "a"}, ERROR),
        "an event without a type is neither the contract's nor a declared extension's",
    ),
    "text without delta": (seen(event("output_text.delta", index=0), ERROR), "response.output_text.delta: delta is"),
    "text without index": (seen(event("output_text.delta", delta=""), ERROR), "response.output_text.delta: index is"),
    "an index that is true": (seen(text("a", True), ERROR), "response.output_text.delta: index is missing or of the"),
    "a negative index": (seen(text("a", -1), ERROR), "response.output_text.delta: index is negative"),
    "a call without a name": (seen(call("started", name=""), ERROR), "response.tool_call.started: name is empty"),
    "a call without an id": (seen(call("started", ""), ERROR), "response.tool_call.started: call_id is empty"),
    "an error without a code": (
        seen(event("error", error={"type": "t", "message": "m"})),
        "response.error: an error has type, code,",
    ),
    "an error with an empty text": (
        seen(event("error", error={"type": "t", "code": "c", "message": ""})),
        "response.error: an error has type, code, message, none empty",
    ),
    "a call's error without a type": (
        seen(call("error", error={"code": "c", "message": "m"}), ERROR),
        "response.tool_call.error: an error has",
    ),
    "usage without a total": (
        seen(event("usage", usage={"input_tokens": 1, "output_tokens": 1}), ERROR),
        "response.usage: usage has input_tokens, output_tokens, total_tokens, each a count",
    ),
    "usage that does not add up": (
        seen(usage(total_tokens=6), ERROR),
        "response.usage: 2 input and 3 output tokens are not 6 in total",
    ),
    "a cancel without a reason": (seen(event("cancelled")), "response.cancelled: reason is missing"),
}
TOOL_CALLS: dict[str, tuple[Observed, str]] = {
    "delta first": (seen(call("delta", arguments_delta=""), ERROR), "call c: delta before started"),
    "completed first": (seen(call("completed", arguments=""), ERROR), "call c: completed before started"),
    "started twice": (seen(call("started"), call("started"), ERROR), "call c was started twice"),
    "never ended": (seen(call("started"), ERROR), "call c was started and never ended"),
    "completed twice": (
        seen(call("started"), call("completed", arguments=""), call("completed", arguments=""), ERROR),
        "call c: completed after completed",
    ),
    "a delta too late": (
        seen(call("started"), call("completed", arguments=""), call("delta", arguments_delta=""), ERROR),
        "call c: delta after completed",
    ),
    "other arguments in the end": (
        seen(*WHOLE_CALL, call("completed", arguments="{ }"), ERROR),
        "call c: the completed arguments are not the deltas joined",
    ),
    "another name in the end": (
        seen(call("started"), call("completed", arguments="", name="g"), ERROR),
        "call c: completed with another name",
    ),
    "another index": (
        seen(call("started"), call("delta", index=1, arguments_delta=""), ERROR),
        "call c: delta has another index, item_id or choice_index than started",
    ),
}
OTHERS: dict[str, tuple[Asked, Observed, str]] = {
    "usage unasked": (asked(), seen(usage(), completed()), "usage: response.usage came unasked"),
    "no usage": (WITH_USAGE, seen(completed()), "usage: response.usage was asked for and did not come"),
    "usage twice": (WITH_USAGE, seen(usage(), usage(), completed()), "usage: response.usage came 2 times, not once"),
    "text after the usage": (
        WITH_USAGE,
        seen(usage(), text("a"), completed(choice("a"))),
        "usage: response.output_text.delta came after the last response.usage",
    ),
    "usage that shrinks": (
        CONTINUOUS,
        seen(usage(), usage(output_tokens=1, total_tokens=3), completed()),
        "usage: the counts of response.usage shrink",
    ),
    "usage unlike the body's": (
        WITH_USAGE,
        seen(usage(output_tokens=4, total_tokens=6), completed()),
        "usage in the body: response.usage and the body's usage differ",
    ),
    "no counts in the body": (asked(), seen(completed(usage={})), "usage in the body: the body's usage has no prompt"),
    "nothing counted": (
        asked(),
        seen(completed(usage={"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2})),
        "usage in the body: an answered request has counted no tokens",
    ),
    "a stream unasked": (
        asked(stream=False),
        seen(text("a"), completed(choice("a"))),
        "no stream: response.output_text.delta came without a stream",
    ),
    "thinking switched off": (
        asked(chat_template_kwargs={"enable_thinking": False}),
        seen(reasoning("r"), ERROR),
        "only what was asked for: reasoning came although thinking is off",
    ),
    "logprobs unasked": (
        asked(),
        seen(event("logprobs.delta", index=0, content=[]), ERROR),
        "only what was asked for: response.logprobs.delta came unasked",
    ),
    "diagnostics unasked": (
        asked(),
        seen(event("diagnostics", diagnostics={}), ERROR),
        "only what was asked for: response.diagnostics came unasked",
    ),
    "openai_chunk unasked": (
        asked(),
        seen({**text("a"), "openai_chunk": {}}, ERROR),
        "only what was asked for: openai_chunk came unasked",
    ),
    "a choice without a name": (
        asked(n=2),
        seen(call("started"), call("completed", arguments=""), ERROR),
        "only what was asked for: a tool call of one of several choices has no choice_index",
    ),
    "another object": (asked(), seen(completed(object="text")), "completed body: the body is no chat.completion"),
    "another model": (asked(), seen(completed(model="n")), "completed body: the body names the model 'n', not 'm'"),
    "a choice too few": (asked(n=2), seen(completed()), "completed body: the body's choices are not 0 to 1"),
    "no finish reason": (
        asked(),
        seen(completed(choice(finish_reason=None))),
        "completed body: choice 0 has the finish reason None",
    ),
    "another role": (
        asked(),
        seen(completed(choice(message={"role": "user"}))),
        "completed body: choice 0 is no message of the assistant",
    ),
    "text swapped": (
        asked(),
        seen(text("b"), text("a"), completed(choice("ab"))),
        "order of text: the response.output_text.delta events of choice 0, joined, are not its content",
    ),
    "text lost": (
        asked(),
        seen(completed(choice("ab"))),
        "order of text: the response.output_text.delta events of choice 0, joined, are not its content",
    ),
    "reasoning lost": (
        asked(),
        seen(completed(choice("", message={"reasoning": "r"}))),
        "order of text: the response.reasoning_text.delta events of choice 0, joined, are not its reasoning",
    ),
    "text of a choice that is not there": (
        asked(),
        seen(text("a", 1), completed()),
        "order of text: response.output_text.delta of a choice that the body does not have",
    ),
    "a call that is not in the body": (
        asked(),
        seen(*WHOLE_CALL, call("completed", arguments="{}"), completed()),
        "streamed calls: the streamed tool calls are not the body's",
    ),
    "a call that was not streamed": (
        asked(),
        seen(completed(called("{}"))),
        "streamed calls: the streamed tool calls are not the body's",
    ),
    "a stop string": (
        asked(stop="b"),
        seen(text("ab"), completed(choice("ab"))),
        "limits: the stop string 'b' is in the answer",
    ),
    "a token too many": (asked(max_tokens=2), seen(completed()), "limits: 3 tokens were generated, and 2 allowed"),
    "no JSON": (
        STRUCTURED,
        seen(text("x"), completed(choice("x"))),
        "structured output: choice 0 is no JSON object",
    ),
    "no such field": (
        STRUCTURED,
        seen(text('{"a": "x"}'), completed(choice('{"a": "x"}'))),
        "structured output: choice 0: b is missing or none of None",
    ),
    "another value": (
        STRUCTURED,
        seen(text('{"a": "y", "b": 1}'), completed(choice('{"a": "y", "b": 1}'))),
        "structured output: choice 0: a is missing or none of ['x']",
    ),
    "no models": (
        CAPABILITIES,
        seen(event("completed", body=DOCUMENT | {"models": []})),
        "capability document: the document names no models",
    ),
    "no operations": (
        CAPABILITIES,
        seen(event("completed", body=without(DOCUMENT, "operations"))),
        "capability document: operations: Field required",
    ),
    "another operation only": (
        CAPABILITIES,
        seen(event("completed", body=DOCUMENT | {"operations": [MANIFEST["operations"][0] | {"name": "o"}]})),
        "capability document: the document has no operation chat.completions.create",
    ),
    "less than is claimed": (
        CAPABILITIES,
        seen(event("completed", body=DOCUMENT | {"extensions": DOCUMENT["extensions"][1:]})),
        "capability document: the manifest claims the extension choice_index, the document does not",
    ),
}
BROKEN: dict[str, tuple[Asked, Observed, str]] = {
    **{f"terminal: {name}": (asked(), *row[:1], f"one terminal: {row[1]}") for name, row in ONE_TERMINAL.items()},
    **{f"event: {name}": (asked(), *row[:1], f"known events: {row[1]}") for name, row in KNOWN_EVENTS.items()},
    **{f"call: {name}": (asked(), *row[:1], f"life of a tool call: {row[1]}") for name, row in TOOL_CALLS.items()},
    **OTHERS,
}


@pytest.mark.parametrize(("request_", "observed", "finding"), BROKEN.values(), ids=BROKEN.keys())
def test_broken(request_: Asked, observed: Observed, finding: str) -> None:
    found = broken_rules(request_, observed)
    assert any(finding in each for each in found), found


def test_an_extension_that_is_not_declared_is_none() -> None:
    found = broken_rules(replace(asked(), extensions=frozenset()), seen(reasoning("r"), ERROR))
    assert found == ["known events: response.reasoning_text.delta is neither the contract's nor a declared extension's"]


def test_every_rule_has_a_row() -> None:
    assert {finding.partition(":")[0] for _, _, finding in BROKEN.values()} == set(RULES)
