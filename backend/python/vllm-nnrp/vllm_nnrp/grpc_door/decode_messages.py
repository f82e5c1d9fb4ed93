# SPDX-License-Identifier: MIT
"""Messages and Metadata of PredictOptions, as an OpenAI chat body has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chatdelta import RESERVED_TEMPLATE_KWARGS, InvalidRequest
from localai_proto import backend_pb2 as pb
from vllm_nnrp.json_text import parse_json, parse_json_object

REASONING_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})


def decode_messages(messages: Iterable[pb.Message]) -> list[dict[str, Any]]:
    """OpenAI messages, in order. Raises InvalidRequest naming the message."""
    return [_message(message, f"Messages[{index}]") for index, message in enumerate(messages)]


def _message(message: pb.Message, where: str) -> dict[str, Any]:
    if not message.role:
        raise InvalidRequest(f"{where}.role is empty", code="invalid_body", param=f"{where}.role")
    decoded: dict[str, Any] = {"role": message.role, "content": message.content}
    for field in ("name", "tool_call_id", "reasoning_content"):
        if value := getattr(message, field):
            decoded[field] = value
    if message.tool_calls and (calls := _tool_calls(message.tool_calls, f"{where}.tool_calls")):
        decoded["tool_calls"] = calls
        decoded["content"] = message.content or None
    return decoded


def _tool_calls(text: str, where: str) -> list[dict[str, Any]]:
    calls = parse_json(text, where)
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise InvalidRequest(f"{where} must be a JSON array", code="invalid_body", param=where)
    return [_tool_call(call, where) for call in calls]


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    """One call; core's `index` is dropped, OpenAI's form has none."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest(f"{where}: a call needs function.name", code="invalid_body", param=where)
    return {
        "id": str(call.get("id") or ""),
        "type": "function",
        "function": {"name": function["name"], "arguments": function.get("arguments")},
    }


def decode_metadata(metadata: Mapping[str, str]) -> dict[str, Any]:
    """`chat_template_kwargs` and `reasoning_effort`; an explicit key wins over the blob. Other keys are ignored.

    Reserved kwargs are dropped: core merges a client's metadata in unfiltered, so nobody there could mend a refusal.
    """
    kwargs: dict[str, Any] = {}
    if blob := metadata.get("chat_template_kwargs"):
        given = parse_json_object(blob, "Metadata.chat_template_kwargs")
        kwargs = {key: value for key, value in given.items() if key not in RESERVED_TEMPLATE_KWARGS}
    if thinking := metadata.get("enable_thinking"):
        kwargs.pop("thinking", None)  # the blob's other name for it
        kwargs["enable_thinking"] = _boolean(thinking, "Metadata.enable_thinking")
    body: dict[str, Any] = {}
    if effort := metadata.get("reasoning_effort"):
        if effort in REASONING_EFFORTS:
            body["reasoning_effort"] = effort
        kwargs["reasoning_effort"] = effort
    if kwargs:
        body["chat_template_kwargs"] = kwargs
    return body


def _boolean(text: str, field: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise InvalidRequest(f"{field} must be true or false", code="invalid_body", param=field)
