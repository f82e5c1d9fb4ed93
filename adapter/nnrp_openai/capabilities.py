# SPDX-License-Identifier: MIT
"""The capability document: what this door can do with the engine that is loaded now."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nnrp.capabilities import Preview4ControlCapability as Control
from nnrp.capabilities import Preview4ObjectCapability as Object

from chatdelta import EngineInfo
from nnrp_openai.profile import COMPATIBILITY_LEVELS, OPERATIONS, PROFILE, SCHEMA_VERSION

OWNED_BY = "vllm"
# What is true of this door whatever is loaded: the answer to CAPABILITY_NEGOTIATION, and part of the document.
CONTROL: Mapping[str, str] = MappingProxyType(
    {
        Control.BUDGET_UPDATE: "A token budget ends an operation at its first token beyond.",
        Object.CACHE_REFERENCE: "Answered with CACHE_MISS: no cache is shared.",
        Control.CANCEL_ABORT: "CANCEL, ABORT and FRAME_CANCEL, of an operation and of a session.",
        Control.CREDIT_BACKPRESSURE: "CREDIT_UPDATE, BACKPRESSURE and FLOW_UPDATE pause their scope.",
        Control.DEADLINE_EXPIRE: "DEADLINE and EXPIRE_AT, a DEADLINE also before its submit.",
        Control.DEGRADE_PROFILE: "Answered with what is true; nothing is degraded.",
        Object.OBJECT_LIFECYCLE: "Declared objects are remembered, not stored.",
        Control.PROGRESS_PARTIAL: "PROGRESS where nnrp.progress asks for it, PARTIAL_RESULT always.",
        Control.RECOVERABLE_ERROR: "A frame that is refused is answered with its reason.",
        Control.RESULT_DROP_REASON: "The terminal of an operation that was ended from outside.",
        Control.ROUTE_EXECUTION_HINT: "Observed; there is one route.",
        Control.SUPERSEDE: "The place of a superseded operation is kept for its replacement.",
        Control.TRACE_CONTEXT: "Of a session or an operation, forwarded to the engine as traceparent.",
    }
)
PRIORITY = Control.PRIORITY_UPDATE
PRIORITY_TEXT = "Until the operation is dispatched; the engine schedules by priority."


def control_capabilities(info: EngineInfo | None) -> dict[str, str]:
    """Capability token → what it means here, for what is loaded now."""
    tokens = {str(token): text for token, text in CONTROL.items()}
    if info is not None and info.priority_scheduling:
        tokens[str(PRIORITY)] = PRIORITY_TEXT
    return tokens


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
        _extension("capabilities.get", "An operation with an empty body; its response.completed holds this document."),
        _extension("response.logprobs.delta", "Where logprobs are asked for: those of every token, as they come."),
        _extension("vllm.diagnostics", "With nnrp.diagnostics a response.diagnostics event precedes the terminal."),
        _extension("nnrp.openai_chunk", "In the envelope: events then carry openai_chunk, OpenAI's streaming chunk."),
    ]
    if info is not None and info.reasoning_parser is not None:
        extensions.append(
            _extension("response.reasoning_text.delta", "Reasoning text, as events beside response.output_text.delta.")
        )
    if info is not None:
        extensions += [_extension(f"vllm.lacks.{name}", what) for name, what in info.lacks.items()]
    extensions += [_extension(token, text) for token, text in sorted(control_capabilities(info).items())]
    return extensions


def _extension(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "critical": False, "description": description}
