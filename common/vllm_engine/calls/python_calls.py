# SPDX-License-Identifier: MIT
"""The calls in a list that is written as Python, by vLLM's own function for one of them.

Its parsers do the same, but try a regular expression first, which can take seconds, and know no sign before a number.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any


class Signed(ast.NodeTransformer):
    """Makes a literal of a number with its sign."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        number = getattr(node.operand, "value", None)
        if not isinstance(number, int | float) or not isinstance(node.op, ast.USub | ast.UAdd):
            return node
        return ast.Constant(-number if isinstance(node.op, ast.USub) else number)


def python_calls(text: str) -> Sequence[Any]:
    """Native ToolCalls; none where `text` is no list of calls with literal arguments."""
    from vllm.tool_parsers.utils import UnexpectedAstError, handle_single_tool

    try:
        elements = Signed().visit(ast.parse(text, mode="eval")).body.elts
        return [handle_single_tool(element) for element in elements]
    except (SyntaxError, ValueError, AttributeError, RecursionError, MemoryError, UnexpectedAstError):
        return ()
