# SPDX-License-Identifier: MIT
"""Whatever a target sends, the rules give findings and never an exception."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.vllm_nnrp_conformance.seeing import asked, seen
from vllm_nnrp.conformance.answer_rules import broken_rules
from vllm_nnrp.conformance.event_rules import EXTENSION_SHAPES, SHAPES
from vllm_nnrp.conformance.expectations import missed
from vllm_nnrp.conformance.models import Expect, ExpectedEvent
from vllm_nnrp.conformance.verdict import judge

Values = st.SearchStrategy[Any]
KINDS = [*SHAPES, *EXTENSION_SHAPES, "response.other"]
SCALARS: Values = st.sampled_from((None, True, 0, 1, -1, 10**30, 0.5, "", "a", "m", "chat.completion", "stop"))
JSON: Values = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
)
# Nonsense in the shape that the rules look into, so that it gets there.
FUNCTIONS: Values = st.fixed_dictionaries({}, optional={"name": SCALARS, "arguments": JSON})
CALLS: Values = st.lists(
    st.fixed_dictionaries({}, optional={"id": JSON, "function": FUNCTIONS | JSON}) | JSON, max_size=2
)
MESSAGES: Values = st.fixed_dictionaries(
    {}, optional={"role": SCALARS, "content": JSON, "reasoning": JSON, "tool_calls": CALLS | JSON}
)
CHOICES: Values = st.lists(
    st.fixed_dictionaries({}, optional={"index": JSON, "message": MESSAGES | JSON, "finish_reason": JSON}) | JSON,
    max_size=2,
)
COUNTS: Values = st.dictionaries(st.sampled_from(("prompt_tokens", "completion_tokens", "total_tokens")), SCALARS)
FIELDS = ("index", "delta", "item_id", "call_id", "name", "arguments", "arguments_delta", "error", "usage", "reason")
USAGES: Values = st.dictionaries(st.sampled_from(("input_tokens", "output_tokens", "total_tokens")), SCALARS)
BODIES: Values = st.fixed_dictionaries(
    {},
    optional={"object": SCALARS, "model": SCALARS, "choices": CHOICES | JSON, "usage": COUNTS | JSON, "models": JSON},
)
EVENTS: Values = st.builds(
    lambda kind, fields, more: {"type": kind, **fields, **more},
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5),
    st.fixed_dictionaries({}, optional={"body": BODIES | JSON, "usage": USAGES, "choice_index": SCALARS}),
)
COMPLETED: Values = st.builds(lambda body: {"type": "response.completed", "body": body}, BODIES)
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"]}
REQUESTS = [
    asked(),
    asked(n=2, stop=["a"], max_tokens=1, stream_options={"include_usage": True}),
    asked(stream=False, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}),
    asked(operation="capabilities.get"),
]
EXPECTED = Expect(
    events=tuple(ExpectedEvent(type=kind, fields={"index": 0, "body": {"choices": [{}]}}) for kind in KINDS),
    terminal="error",
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(REQUESTS), st.lists(EVENTS, max_size=4), EVENTS | COMPLETED)
def test_no_answer_breaks_a_rule_of_ours(request_: Any, events: list[Any], last: Any) -> None:
    observed = seen(*events, last)
    broken_rules(request_, observed)
    missed(EXPECTED, observed)
    judge(request_.case, observed, request_.extensions, transport="nnrp")
