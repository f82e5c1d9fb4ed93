# SPDX-License-Identifier: MIT
"""A client's chat body as vLLM's own request model has it, the same from either door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from vllm.entrypoints.chat_utils import MM_PARSER_MAP
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

from chatdelta import ChatRequest
from vllm_engine.errors import refused
from vllm_engine.fields import taken_fields
from vllm_engine.messages import engine_messages
from vllm_engine.shapes import check_shapes, check_tool_choice
from vllm_engine.thinking import with_switch


def chat_request(request: ChatRequest) -> ChatCompletionRequest:
    """The validated request, with deltas switched on whatever its client wanted. Raises InvalidRequest."""
    body = taken_fields(request.body, offered=ChatCompletionRequest.model_fields.keys())
    check_shapes(body)
    check_tool_choice(body.get("tool_choice"), body.get("tools"))
    body["messages"] = engine_messages(body["messages"], MM_PARSER_MAP)
    body["stream"] = True
    if isinstance(kwargs := body.get("chat_template_kwargs") or {}, Mapping):
        # None where nothing is said: Mistral's tokenizers, which have no template, refuse even empty ones
        body["chat_template_kwargs"] = with_switch(kwargs, body.get("reasoning_effort")) or None
    if request.policy.cache_salt is not None:
        body["cache_salt"] = request.policy.cache_salt
    return _validated(body)


def _validated(body: Mapping[str, Any]) -> ChatCompletionRequest:
    try:
        chat = ChatCompletionRequest.model_validate(body)
    except ValidationError as exc:
        raise refused(exc) from exc
    for index, message in enumerate(chat.messages):
        content = message.get("content")
        if isinstance(content, str | None):
            continue
        try:
            message["content"] = list(content)  # checked only when it is read, and then without its place
        except ValidationError as exc:
            raise refused(exc, start=f"messages.{index}.content") from exc
    return chat
