# SPDX-License-Identifier: MIT
"""The capability document says what is loaded, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chatdelta import EngineInfo
from chatdelta.testing import SCRIPTED_INFO
from nnrp_openai import capability_document
from nnrp_wire.limits import KNOWN_CAPABILITY_TOKENS

CHOICE_INDEX = {
    "name": "choice_index",
    "critical": False,
    "description": "With n > 1 each response.tool_call event names its choice in this field.",
}
ALWAYS = [
    CHOICE_INDEX,
    {
        "name": "capabilities.get",
        "critical": False,
        "description": "An operation with an empty body; its response.completed holds this document.",
    },
    {
        "name": "response.logprobs.delta",
        "critical": False,
        "description": "Where logprobs are asked for: those of every token, as they come.",
    },
    {
        "name": "vllm.diagnostics",
        "critical": False,
        "description": "With nnrp.diagnostics a response.diagnostics event precedes the terminal.",
    },
    {
        "name": "nnrp.openai_chunk",
        "critical": False,
        "description": "In the envelope: events then carry openai_chunk, OpenAI's streaming chunk.",
    },
]
REASONING = {
    "name": "response.reasoning_text.delta",
    "critical": False,
    "description": "Reasoning text, as events beside response.output_text.delta.",
}


def document(*, tool_calls: bool, models: list[str], extensions: list[Any]) -> dict[str, Any]:
    return {
        "profile": "openai-compatible",
        "schema_version": "openai-compatible/1",
        "compatibility_levels": [1],
        "operations": [
            {
                "name": "chat.completions.create",
                "streaming": True,
                "non_streaming": True,
                "tool_calls": tool_calls,
                "cancellation": True,
            }
        ],
        "models": [{"id": name, "owned_by": "vllm"} for name in models],
        "extensions": extensions,
    }


def extensions_of(info: EngineInfo | None) -> tuple[dict[str, Any], list[str]]:
    """The document without the control tokens, and these."""
    whole = capability_document(info)
    extensions = whole["extensions"]
    tokens = [entry["name"] for entry in extensions if entry["name"] in KNOWN_CAPABILITY_TOKENS]
    return {**whole, "extensions": [entry for entry in extensions if entry["name"] not in tokens]}, tokens


def test_everything_loaded() -> None:
    info = replace(SCRIPTED_INFO, model_names=("a", "b"))
    expected = document(tool_calls=True, models=["a", "b"], extensions=[*ALWAYS, REASONING])
    assert extensions_of(info)[0] == expected


def test_no_parsers() -> None:
    info = replace(SCRIPTED_INFO, tool_parser=None, reasoning_parser=None)
    assert extensions_of(info)[0] == document(tool_calls=False, models=["scripted"], extensions=ALWAYS)


def test_what_the_engines_vllm_lacks_is_said() -> None:
    info = replace(SCRIPTED_INFO, lacks={"truncation_side": "a prompt is cut on its left only"})
    lack = {
        "name": "vllm.lacks.truncation_side",
        "critical": False,
        "description": "a prompt is cut on its left only",
    }
    expected = document(tool_calls=True, models=["scripted"], extensions=[*ALWAYS, REASONING, lack])
    assert extensions_of(info)[0] == expected


def test_no_model() -> None:
    assert extensions_of(None)[0] == document(tool_calls=False, models=[], extensions=ALWAYS)


ALWAYS_TRUE = [
    "cache.reference",
    "control.budget_update",
    "control.cancel_abort",
    "control.credit_backpressure",
    "control.deadline_expire",
    "control.degrade_profile",
    "control.progress_partial",
    "control.recoverable_error",
    "control.result_drop_reason",
    "control.route_execution_hint",
    "control.supersede",
    "control.trace_context",
    "object.lifecycle",
]


@pytest.mark.parametrize("info", [None, SCRIPTED_INFO])
def test_the_control_frames_that_are_obeyed(info: EngineInfo | None) -> None:
    assert extensions_of(info)[1] == ALWAYS_TRUE


def test_priority_is_claimed_where_the_engine_schedules_by_it() -> None:
    info = replace(SCRIPTED_INFO, priority_scheduling=True)
    assert extensions_of(info)[1] == sorted([*ALWAYS_TRUE, "control.priority_update"])
