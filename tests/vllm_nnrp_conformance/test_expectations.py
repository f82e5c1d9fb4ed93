# SPDX-License-Identifier: MIT
"""A recipe's expectations against what was seen: the end, and the events by number, order and fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vllm_nnrp_conformance.documents import Json
from tests.vllm_nnrp_conformance.seeing import completed, event, reasoning, seen, text, usage
from vllm_nnrp.conformance.expectations import contains, missed
from vllm_nnrp.conformance.models import Expect
from vllm_nnrp.conformance.observed import DROP, PARTIAL, PUSH, Observed, Seen

STREAM = seen(reasoning("r"), text("a"), text("b"), usage(), completed())
ERROR = seen(event("error", error={"type": "t", "code": "c", "message": "m"}))
CANCELLED = event("cancelled", reason="r")
TEXT, REASON, USAGE, DONE = (
    {"type": f"response.{kind}"} for kind in ("output_text.delta", "reasoning_text.delta", "usage", "completed")
)


def expect(*events: Json, terminal: str = "success") -> Expect:
    return Expect.model_validate_json(json.dumps({"events": events, "terminal": terminal}))


MET: dict[str, tuple[Expect, Observed]] = {
    "nothing but the end": (expect(), STREAM),
    "in order": (expect(REASON, TEXT, USAGE, DONE), STREAM),
    "twice": (expect(TEXT, TEXT), STREAM),
    "often enough": (expect(TEXT | {"min_count": 2}), STREAM),
    "optional and not there": (expect({"type": "response.error", "optional": True}, DONE), STREAM),
    "optional and there": (expect(REASON | {"optional": True}, TEXT), STREAM),
    "min_count 0 and not there": (expect({"type": "response.error", "min_count": 0}), STREAM),
    "fields of the first": (expect(TEXT | {"fields": {"index": 0, "delta": "a"}}), STREAM),
    "fields inside": (expect(DONE | {"fields": {"body": {"choices": [{"message": {"role": "assistant"}}]}}}), STREAM),
    "an error": (expect({"type": "response.error", "fields": {"error": {"code": "c"}}}, terminal="error"), ERROR),
    "a drop with its event": (
        expect(terminal="cancelled"),
        Observed((Seen(DROP, 0, CANCELLED, {"drop_reason_code": 3}),)),
    ),
    "an empty result": (expect(), Observed((Seen(PUSH, 0),))),
}


@pytest.mark.parametrize(("expected", "observed"), MET.values(), ids=MET.keys())
def test_met(expected: Expect, observed: Observed) -> None:
    assert missed(expected, observed) == []


MISSED: dict[str, tuple[Expect, Observed, str]] = {
    "another end": (expect(terminal="error"), STREAM, "the terminal is success, not error"),
    "no end": (expect(), Observed((Seen(PARTIAL, 0, text("a")),)), "the terminal is missing, not success"),
    "nothing at all": (expect(), Observed(()), "the terminal is missing, not success"),
    "an error without its event": (
        expect(terminal="error"),
        Observed((Seen(DROP, 0, None, {"drop_reason_code": 4}),)),
        "the terminal error must come with response.error",
    ),
    "a cancel without its event": (
        expect(terminal="cancelled"),
        Observed((Seen(DROP, 0, None, {"drop_reason_code": 3}),)),
        "the terminal cancelled must come with response.cancelled",
    ),
    "not often enough": (
        expect(TEXT | {"min_count": 3}),
        STREAM,
        "response.output_text.delta came 2 times, not at least 3",
    ),
    "not at all": (expect({"type": "response.error"}), STREAM, "response.error came 0 times, not at least 1"),
    "in another order": (
        expect(TEXT, REASON),
        STREAM,
        "response.reasoning_text.delta did not come after the event expected before it",
    ),
    "one too few in a row": (
        expect(TEXT, TEXT, TEXT),
        STREAM,
        "response.output_text.delta did not come after the event expected before it",
    ),
    "another field": (
        expect(TEXT | {"fields": {"delta": "b"}}),
        STREAM,
        "response.output_text.delta: delta is 'a', not 'b'",
    ),
    "no such field": (
        expect(USAGE | {"fields": {"index": 0}}),
        STREAM,
        "response.usage: index is None, not 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("expected", "observed", "finding"), MISSED.values(), ids=MISSED.keys())
def test_missed(expected: Expect, observed: Observed, finding: str) -> None:
    assert finding in missed(expected, observed)


CONTAINS: list[tuple[Any, Any, bool]] = [
    ({"a": 1, "b": 2}, {"a": 1}, True),
    ({"a": 1}, {"a": 1, "b": 2}, False),
    ({"a": {"b": [1, 2]}}, {"a": {"b": [1]}}, True),
    ([1, 2], [2], False),
    ([1], [1, 2], False),
    ({}, [], False),
    (True, 1, False),
    (1, 1.0, False),
    (None, None, True),
    ("a", "a", True),
]


@pytest.mark.parametrize(("actual", "expected", "is_in"), CONTAINS)
def test_contains(actual: Any, expected: Any, is_in: bool) -> None:
    assert contains(actual, expected) is is_in
