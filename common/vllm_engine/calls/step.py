# SPDX-License-Identifier: MIT
"""Step 3's arguments: the native parser loses a text with a "<" in it, and gives objects and lists as text."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

from vllm_engine.calls.gemma import MARK

NO_MARKUP = re.compile("<(?!/?steptml:)")


def keep_arguments(tool_parser: Any) -> None:
    """From now on this parser of step3 keeps them all, and types them by vLLM's rule for its newer parsers, if any."""
    read = tool_parser._parse_steptml_invoke

    def kept(invoke: str) -> tuple[str | None, dict[str, str] | None]:
        name, arguments = read(NO_MARKUP.sub(MARK, invoke))
        return name, arguments and {key: text.replace(MARK, "<") for key, text in arguments.items()}

    tool_parser._parse_steptml_invoke = kept
    if find_spec("vllm.parser.engine") is None:  # before 0.26
        return
    from vllm.parser.engine.parser_engine import ParserEngine
    from vllm.tool_parsers.utils import find_tool_properties

    def typed(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        properties = find_tool_properties(tool_parser.tools, name)
        return ParserEngine._coerce_dict(arguments, properties)[0] if properties else arguments

    tool_parser._cast_arguments = typed
