# SPDX-License-Identifier: MIT
"""vLLM 0.18: as 0.22, with fewer arguments, no processors for pooling, and no way around its cache of media."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.render.serving import OpenAIServingRender

from vllm_engine.bindings.family_binding import FamilyBinding
from vllm_engine.bindings.separate_parsers import separate_parsers
from vllm_engine.bindings.server_runtime import ServerRuntime, model_registry
from vllm_engine.in_flight import InFlight
from vllm_engine.pooling_tasks import NoPooling, PoolingTasks
from vllm_engine.spec import EngineSpec

KIMI = "kimi_k2"
# A rendered image cannot be kept out of the cache, and one that is not generated from would spoil it.
ENGINE_DEFAULTS = MappingProxyType({"mm_processor_cache_gb": 0})
# Tool parsers that look for the text of special tokens; from 0.22 they ask for it themselves.
READS_SPECIAL_TOKENS = frozenset({"kimi_k2", "gigachat3"})

parser_class = partial(separate_parsers, knows_model=False)


class Runtime018(ServerRuntime):
    """The built engine of this family."""

    def __init__(self, llm: Any, spec: EngineSpec, renderer: OpenAIServingRender) -> None:
        super().__init__(llm, spec, renderer, parser_class(spec, llm.model_config))

    def pooling(self, in_flight: InFlight, supported_tasks: Sequence[str], lora_request: Any) -> PoolingTasks:
        return NoPooling()

    async def rendered_chat(self, chat: ChatCompletionRequest) -> Any:
        if self._spec.tool_parser in READS_SPECIAL_TOKENS and chat.tools and chat.tool_choice != "none":
            chat.skip_special_tokens = False
        return await self._renderer.render_chat(chat)

    def parser_kwargs(self, template_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        return {}  # one reasoning parser for all requests of the engine

    def call_id_type(self) -> str:
        overrides = self._model_config.hf_overrides
        types = {self._model_config.hf_text_config.model_type}
        if isinstance(overrides, dict):
            types.add(overrides.get("model_type"))
        return KIMI if KIMI in types else "random"


def open_renderer(llm: Any, spec: EngineSpec) -> OpenAIServingRender:
    return OpenAIServingRender(
        llm.model_config,
        llm.renderer,
        None,  # the processor of inputs and outputs, for models with one of their own
        model_registry(llm, spec),
        request_logger=None,
        chat_template=None,
        chat_template_content_format="auto",
        enable_auto_tools=True,
        tool_parser=spec.tool_parser,
    )


BINDING = FamilyBinding("0.18", Runtime018, open_renderer, parser_class, ENGINE_DEFAULTS)
