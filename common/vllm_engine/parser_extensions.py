# SPDX-License-Identifier: MIT
"""Parsers that import without what they need at their first use: found at load, not at somebody's first request."""

from __future__ import annotations

import importlib

from chatdelta import InvalidRequest

RUST_EXTENSION = "vllm._rust_tool_parser"


def refuse_without_extension(tool_parser: str | None) -> None:
    """Raise InvalidRequest for a tool parser written in Rust (minimax_m3) where this vLLM has no Rust part."""
    if tool_parser is None:
        return
    from vllm.tool_parsers import ToolParserManager

    try:
        from vllm.tool_parsers.rust_tool_parser import RustToolParser
    except ImportError:
        return  # before 0.26 there is none
    if not issubclass(ToolParserManager.get_tool_parser(tool_parser), RustToolParser):
        return
    try:
        importlib.import_module(RUST_EXTENSION)
    except ImportError as exc:
        raise InvalidRequest(
            f"tool parser {tool_parser!r} cannot be used: it needs vLLM's Rust part ({RUST_EXTENSION}), "
            "which this build of vLLM lacks",
            param="tool parser",
        ) from exc
