# SPDX-License-Identifier: MIT
"""What 0.18 and 0.22 have in common: chats are rendered by a part of vLLM's server, parsers are separate."""

from __future__ import annotations

from typing import Any

from vllm.entrypoints.chat_utils import get_history_tool_calls_cnt
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.entrypoints.openai.models.serving import OpenAIModelRegistry
from vllm.entrypoints.openai.parser.harmony_utils import get_stop_tokens_for_assistant_actions

from vllm_engine.bindings.runtime import FamilyRuntime
from vllm_engine.bindings.separate_parsers import HarmonyTokens
from vllm_engine.spec import EngineSpec


class ServerRuntime(FamilyRuntime):
    """A built engine whose chats `OpenAIServingRender` renders."""

    harmony_class = HarmonyTokens

    def __init__(self, llm: Any, spec: EngineSpec, renderer: Any, parser_class: Any) -> None:
        super().__init__(llm, spec, renderer, parser_class)
        if parser_class is not None:
            renderer.tool_parser = parser_class.tool_parser_cls
        if renderer.use_harmony:  # 0.26 finds them in the model's generation_config.json
            stops = self._default_sampling.setdefault("stop_token_ids", [])
            stops.extend(get_stop_tokens_for_assistant_actions())
            self._end_token_ids |= set(stops)

    def past_calls(self, chat: ChatCompletionRequest, conversation: Any) -> int:
        return int(get_history_tool_calls_cnt(conversation))


def model_registry(llm: Any, spec: EngineSpec) -> OpenAIModelRegistry:
    """The names a server of vLLM would answer to."""
    return OpenAIModelRegistry(llm.model_config, [BaseModelPath(name, spec.model) for name in spec.names])
