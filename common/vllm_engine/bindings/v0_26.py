# SPDX-License-Identifier: MIT
"""vLLM 0.26: `OnlineRenderer` renders, `ParserManager`'s unified parser parses, `AsyncLLM` generates."""

from __future__ import annotations

from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import ParserManager
from vllm.parser.harmony import HarmonyParser
from vllm.parser.utils import count_history_tool_calls
from vllm.renderers.online_renderer import OnlineRenderer

from vllm_engine.bindings.family_binding import FamilyBinding
from vllm_engine.bindings.runtime import FamilyRuntime
from vllm_engine.parser_pair import take_tools
from vllm_engine.spec import EngineSpec


class Runtime026(FamilyRuntime):
    """The built engine of this family."""

    harmony_class = HarmonyParser

    def __init__(self, llm: Any, spec: EngineSpec, renderer: OnlineRenderer) -> None:
        take_tools(renderer.parser)
        super().__init__(llm, spec, renderer, renderer.parser)

    def past_calls(self, chat: ChatCompletionRequest, conversation: Any) -> int:
        return int(count_history_tool_calls(chat))


def open_renderer(llm: Any, spec: EngineSpec) -> OnlineRenderer:
    return OnlineRenderer(
        llm.model_config,
        llm.renderer,
        request_logger=None,
        chat_template=None,
        chat_template_content_format="auto",
        enable_auto_tools=True,
        tool_parser=spec.tool_parser,
        reasoning_parser=spec.reasoning_parser,
    )


def parser_class(spec: EngineSpec, model_config: Any) -> type | None:
    found: type | None = ParserManager.get_parser(
        spec.tool_parser,
        spec.reasoning_parser,
        enable_auto_tools=True,
        is_harmony=model_config.hf_config.model_type == "gpt_oss",
    )
    return found


BINDING = FamilyBinding("0.26", Runtime026, open_renderer, parser_class)
