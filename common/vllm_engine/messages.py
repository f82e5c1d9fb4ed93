# SPDX-License-Identifier: MIT
"""A client's messages as vLLM gets them: arguments of past calls that it can decode, media known by content alone."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from typing import Any

from vllm_engine.shapes import refusal


def engine_messages(messages: Sequence[Any], part_types: Container[object]) -> list[dict[str, Any]]:
    """Copies that vLLM may change; `part_types` are its kinds of content parts. Raises InvalidRequest by place."""
    return [_message(message, f"messages.{index}", part_types) for index, message in enumerate(messages)]


def _message(message: Any, where: str, part_types: Container[object]) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise refusal(where, "must be an object")
    if not isinstance(message.get("role"), str):
        raise refusal(f"{where}.role", "must be a string")
    changed = dict(message)
    if isinstance(content := message.get("content"), list):
        changed["content"] = [_part(part, f"{where}.content.{at}", part_types) for at, part in enumerate(content)]
    if (calls := message.get("tool_calls")) is not None:
        if not isinstance(calls, list):
            raise refusal(f"{where}.tool_calls", "must be an array")
        changed["tool_calls"] = [_call(call, f"{where}.tool_calls.{at}") for at, call in enumerate(calls)]
    return changed


def _part(part: Any, where: str, part_types: Container[object]) -> Any:
    """Without a `uuid`: vLLM takes it for the hash of the content, and one client's could bring another's image."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise refusal(where, "must be an object")
    if not isinstance(kind := part.get("type"), str) or kind not in part_types:
        raise refusal(f"{where}.type", "is not one of the known kinds")
    if kind == "text" and not isinstance(part.get("text"), str):
        raise refusal(f"{where}.text", "must be a string")
    return {name: value for name, value in part.items() if name != "uuid"}


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise refusal(f"{where}.function.name", "must be a string")
    if not isinstance(call.get("id"), str):
        raise refusal(f"{where}.id", "must be a string")
    if call.get("type", "function") != "function":
        raise refusal(f"{where}.type", "must be function")
    arguments = _arguments(function.get("arguments"))
    return {**call, "type": "function", "function": {**function, "arguments": arguments}}


def _arguments(arguments: Any) -> str:
    """JSON text, which vLLM decodes for the template.

    Text that is no JSON becomes a JSON string and so reaches the template as it is. A call that was cut by the token
    limit has such arguments: a conversation must be able to go on after one.
    """
    if arguments is None or arguments == "":
        return "{}"
    if isinstance(arguments, str) and _is_json(arguments):
        return arguments
    return json.dumps(arguments, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
