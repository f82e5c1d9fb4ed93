# SPDX-License-Identifier: MIT
"""What must hold before vLLM's request model sees a chat body.

Some of its validators run on the raw JSON: they fail on a wrong type with a Python error, or refuse without a name.
Everything else is left to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from chatdelta import InvalidRequest

CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


def check_shapes(body: Mapping[str, Any]) -> None:
    """Raise InvalidRequest with the field's name."""
    _check_prompt(body)
    _check_tools(body.get("tools"))
    _check_tokens(body)
    if not isinstance(body.get("top_logprobs"), int | None):
        raise refusal("top_logprobs", "must be an integer")
    _check_response_format(body.get("response_format"))
    if (constraint := body.get("structured_outputs")) is not None:
        _check_constraint(constraint)
        if isinstance(body.get("tool_choice"), dict):
            raise refusal("structured_outputs", "cannot be combined with a tool_choice that names a function")


def _check_prompt(body: Mapping[str, Any]) -> None:
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise refusal("messages", "must be an array that is not empty")
    if body.get("continue_final_message") and body.get("add_generation_prompt", True):
        raise refusal("continue_final_message", "needs add_generation_prompt to be false")


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    if not isinstance(tools, list) or not tools:
        raise refusal("tools", "must be an array that is not empty")
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise refusal(f"tools.{index}.function.name", "must be a string")


def check_tool_choice(choice: Any, tools: Any) -> None:
    """Raise InvalidRequest with the place's name; up to 0.22 vLLM refuses without one. For checked tools."""
    if choice in (None, "none"):
        return
    if tools is None:
        raise refusal("tool_choice", "needs tools")
    if isinstance(choice, dict) and choice.get("type", "function") == "function":
        function = choice.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise refusal("tool_choice.function", "must be an object with a name")
        if all(function["name"] != tool["function"]["name"] for tool in tools):
            raise refusal("tool_choice", "names none of the tools")
    elif choice not in ("auto", "required"):
        raise refusal("tool_choice", "must be none, auto, required or name a function")


def _check_tokens(body: Mapping[str, Any]) -> None:
    salt = body.get("cache_salt")
    if salt is not None and not (isinstance(salt, str) and salt):
        raise refusal("cache_salt", "must be a string that is not empty")
    if isinstance(biases := body.get("logit_bias"), dict) and not all(map(_is_number, biases)):
        raise refusal("logit_bias", "must have the ids of tokens as its keys")


def _is_number(text: Any) -> bool:
    try:
        int(text)
    except (TypeError, ValueError):
        return False
    return True


def _check_response_format(wanted: Any) -> None:
    if isinstance(wanted, dict) and wanted.get("type") == "json_schema":
        schema = wanted["json_schema"].get("schema") if isinstance(wanted.get("json_schema"), dict) else None
        if not isinstance(schema, dict):
            raise refusal("response_format.json_schema.schema", "must be an object")


def _check_constraint(constraint: Any) -> None:
    if not isinstance(constraint, dict):
        raise refusal("structured_outputs", "must be an object")
    given = [kind for kind in CONSTRAINTS if constraint.get(kind) is not None]
    if len(given) != 1:
        raise refusal("structured_outputs", f"must hold exactly one of {', '.join(CONSTRAINTS)}")
    if constraint.get("json_object") is False:
        raise refusal("structured_outputs", "has a json_object that is not true")
    if isinstance(schema := constraint.get("json"), str):
        try:
            json.loads(schema)
        except (ValueError, RecursionError) as exc:
            raise refusal("structured_outputs.json", "is not valid JSON") from exc


def refusal(field: str, finding: str) -> InvalidRequest:
    """`field finding`, as every wire says it."""
    return InvalidRequest(f"{field} {finding}", code="invalid_body", param=field)
