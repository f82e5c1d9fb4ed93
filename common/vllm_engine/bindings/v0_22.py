# SPDX-License-Identifier: MIT
"""vLLM 0.22: `OpenAIServingRender` renders, tool and reasoning parsers are separate, `AsyncLLM` generates."""

from __future__ import annotations

from functools import partial
from typing import Any

from vllm.entrypoints.serve.render.serving import OpenAIServingRender

from vllm_engine.bindings.family_binding import FamilyBinding
from vllm_engine.bindings.separate_parsers import separate_parsers
from vllm_engine.bindings.server_runtime import ServerRuntime, model_registry
from vllm_engine.spec import EngineSpec

parser_class = partial(separate_parsers, knows_model=True)


class Runtime022(ServerRuntime):
    """The built engine of this family."""

    def __init__(self, llm: Any, spec: EngineSpec, renderer: OpenAIServingRender) -> None:
        super().__init__(llm, spec, renderer, parser_class(spec, llm.model_config))


def open_renderer(llm: Any, spec: EngineSpec) -> OpenAIServingRender:
    return OpenAIServingRender(
        llm.model_config,
        llm.renderer,
        model_registry(llm, spec),
        request_logger=None,
        chat_template=None,
        chat_template_content_format="auto",
        enable_auto_tools=True,
        tool_parser=spec.tool_parser,
        reasoning_parser=spec.reasoning_parser,
    )


BINDING = FamilyBinding("0.22", Runtime022, open_renderer, parser_class)
