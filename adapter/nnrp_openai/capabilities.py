# SPDX-License-Identifier: MIT
"""The capability document: what this door can do with the engine that is loaded now."""

from __future__ import annotations

from typing import Any

from chatdelta import EngineInfo
from nnrp_openai.profile import COMPATIBILITY_LEVELS, OPERATIONS, PROFILE, SCHEMA_VERSION

OWNED_BY = "vllm"


def capability_document(info: EngineInfo | None) -> dict[str, Any]:
    """As the contract lists it; None: no model is loaded, so nothing is claimed that depends on one."""
    return {
        "profile": PROFILE,
        "schema_version": SCHEMA_VERSION,
        "compatibility_levels": list(COMPATIBILITY_LEVELS),
        "operations": [
            {
                "name": name,
                "streaming": True,
                "non_streaming": True,
                "tool_calls": info is not None and info.tool_parser is not None,
                "cancellation": True,
            }
            for name in OPERATIONS
        ],
        "models": [{"id": name, "owned_by": OWNED_BY} for name in (info.model_names if info else ())],
        "extensions": _extensions(info),
    }


def _extensions(info: EngineInfo | None) -> list[dict[str, Any]]:
    extensions = [
        _extension("choice_index", "With n > 1 each response.tool_call event names its choice in this field."),
    ]
    if info is not None and info.reasoning_parser is not None:
        extensions.append(
            _extension("response.reasoning_text.delta", "Reasoning text, as events beside response.output_text.delta.")
        )
    return extensions


def _extension(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "critical": False, "description": description}
