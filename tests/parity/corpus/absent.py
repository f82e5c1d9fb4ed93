# SPDX-License-Identifier: MIT
"""Registered parsers that have no entry, and the module they lack: without it nothing of theirs can be run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

COHERE = "cohere_melody"  # an extra of vLLM
RUST = "vllm._rust_tool_parser"  # not in the wheel for CPUs

TOOL_PARSERS: Mapping[str, str] = MappingProxyType(
    {"cohere_command3": COHERE, "cohere_command4": COHERE, "minimax_m3": RUST}
)
REASONING_PARSERS: Mapping[str, str] = MappingProxyType({"cohere_command3": COHERE, "cohere_command4": COHERE})
