# SPDX-License-Identifier: MIT
"""Tools and ToolChoice of PredictOptions, as an OpenAI chat body has them."""

from __future__ import annotations

from typing import Any

import msgspec

from chatdelta import InvalidRequest
from vllm_nnrp.json_text import parse_json

EMPTY_PARAMETERS = {"type": "object", "properties": {}}


def decode_tools(tools_text: str, choice_text: str) -> dict[str, Any]:
    """`tools` and `tool_choice`; each absent where the wire has none. Raises InvalidRequest naming the field.

    A choice of `auto` or `none` without tools says nothing and is dropped; the others stay, for vLLM to refuse.
    """
    body: dict[str, Any] = {}
    if tools := _tools(tools_text):
        body["tools"] = tools
    choice = decode_tool_choice(choice_text)
    if choice is not None and (tools or choice not in ("auto", "none")):
        body["tool_choice"] = choice
    return body


def _tools(text: str) -> list[dict[str, Any]]:
    if not text:
        return []
    tools = parse_json(text, "Tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise _invalid("Tools must be a JSON array", "Tools")
    return [_tool(tool, f"Tools[{index}]") for index, tool in enumerate(tools)]


def _tool(tool: Any, where: str) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise _invalid(f"{where}: a tool needs function.name", where)
    parameters = function.get("parameters")
    if parameters is None:
        parameters = EMPTY_PARAMETERS
    if not isinstance(parameters, dict):
        raise _invalid(f"{where}: function.parameters must be an object", where)
    decoded = {**function, "parameters": parameters}
    if not decoded.get("strict"):
        # Go's JSON says false where a user said nothing. To vLLM that means a forced call need not fit its schema.
        decoded.pop("strict", None)
    return {"type": "function", "function": decoded}


def decode_tool_choice(text: str) -> str | dict[str, Any] | None:
    """Every form core or a client may send: quoted or bare word, double-encoded, OpenAI's and Anthropic's objects."""
    if not text:
        return None
    value: Any = text
    for _ in range(3):  # text, quoted text, text quoted twice
        if not isinstance(value, str):
            break
        try:
            value = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            break  # a bare word
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return _word(value)
    if isinstance(value, dict):
        return _choice_object(value)
    raise _invalid("ToolChoice must be a word or an object", "ToolChoice")


def _word(word: str) -> str:
    normal = {"any": "required"}.get(word, word)
    if normal not in ("auto", "none", "required"):
        raise _invalid("ToolChoice must be auto, none, required or a named tool", "ToolChoice")
    return normal


def _choice_object(value: dict[str, Any]) -> str | dict[str, Any]:
    """{type: function, function: {name}}, {type: function, name}, Anthropic's {type: auto|any|none|tool, name}."""
    kind = value.get("type")
    if kind in ("auto", "any", "none", "required"):
        return _word(str(kind))
    function = value.get("function")
    name = function.get("name") if isinstance(function, dict) else value.get("name")
    if kind in ("function", "tool", None) and isinstance(name, str) and name:
        return {"type": "function", "function": {"name": name}}
    raise _invalid("ToolChoice must be auto, none, required or a named tool", "ToolChoice")


def _invalid(message: str, field: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_body", param=field)
