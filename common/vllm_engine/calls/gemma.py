# SPDX-License-Identifier: MIT
"""Gemma 4's arguments: the native converter takes every bare value for text, and only a schema makes it more again."""

from __future__ import annotations

import re
from typing import Any

QUOTE = '<|"|>'
LITERAL = r"(null|true|false|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
BARE_VALUE = re.compile(rf"(?<=[:\[,])(\s*){LITERAL}(?=\s*[,}}\]])")
MARK = "\ue000"  # private use: in no text of a model
MARKED_VALUE = re.compile(f'"{MARK}{LITERAL}"')


def keep_bare_values(tool_parser: Any) -> None:
    """From now on numbers, true, false and null of this engine-based parser of gemma4 stay what they are."""
    engine = tool_parser._parser_engine
    convert = engine._arg_converter

    def converted(arguments: str, partial: bool) -> str:
        parts = arguments.split(QUOTE)  # every other one is the text of a string
        parts[::2] = [BARE_VALUE.sub(rf"\1{QUOTE}{MARK}\2{QUOTE}", part) for part in parts[::2]]
        return MARKED_VALUE.sub(r"\1", convert(QUOTE.join(parts), partial))

    engine._arg_converter = converted
