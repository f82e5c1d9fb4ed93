# SPDX-License-Identifier: MIT
"""The capability document says what is loaded, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chatdelta.testing import SCRIPTED_INFO
from nnrp_openai import capability_document

CHOICE_INDEX = {
    "name": "choice_index",
    "critical": False,
    "description": "With n > 1 each response.tool_call event names its choice in this field.",
}
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


def test_everything_loaded() -> None:
    info = replace(SCRIPTED_INFO, model_names=("a", "b"))
    expected = document(tool_calls=True, models=["a", "b"], extensions=[CHOICE_INDEX, REASONING])
    assert capability_document(info) == expected


def test_no_parsers() -> None:
    info = replace(SCRIPTED_INFO, tool_parser=None, reasoning_parser=None)
    assert capability_document(info) == document(tool_calls=False, models=["scripted"], extensions=[CHOICE_INDEX])


def test_no_model() -> None:
    assert capability_document(None) == document(tool_calls=False, models=[], extensions=[CHOICE_INDEX])
