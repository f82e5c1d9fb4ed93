# SPDX-License-Identifier: MIT
"""vLLM's own chat server on a scripted client, and our engine on the same client."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.entrypoints.openai.models.serving import OpenAIServingModels

import vllm_engine.media  # noqa: F401 - registers the connector that a real engine's start names in the environment
from chatdelta import EngineInfo
from vllm_engine.adapters import Adapters
from vllm_engine.bindings import select_binding
from vllm_engine.engine import VllmEngine
from vllm_engine.installation import find_installation
from vllm_engine.oracle.client import ScriptedClient
from vllm_engine.spec import EngineSpec


class OracleError(RuntimeError):
    """vLLM's server answered with an error."""


def scripted_config(folder: Path, **engine_args: Any) -> Any:
    """The VllmConfig of a model folder that needs a config.json and a tokenizer, but no weights."""
    values: dict[str, Any] = {"model": str(folder), "enforce_eager": True, "max_model_len": 4096, "dtype": "float32"}
    return AsyncEngineArgs(**{**values, **engine_args}).create_engine_config()


def scripted_engine(client: ScriptedClient, spec: EngineSpec) -> VllmEngine:
    """Our engine on `client`."""
    installation = find_installation()
    binding = select_binding(installation, allow_untested=True)  # what is asked here is what it does
    runtime = binding.borrow(client, None, spec)
    info = EngineInfo(
        model_names=spec.names,
        max_model_len=client.model_config.max_model_len,
        engine_version=installation.version,
        binding=binding.family,
        tool_parser=spec.tool_parser,
        reasoning_parser=spec.reasoning_parser,
    )
    return VllmEngine(runtime, info, adapters=Adapters(spec))


def _renderer_parameter() -> str:
    """`online_renderer`, or before 0.26 `openai_serving_render`."""
    names = inspect.signature(OpenAIServingChat).parameters
    return next(name for name in ("online_renderer", "openai_serving_render") if name in names)


def _keep_parsers(serving: OpenAIServingChat) -> None:
    """0.22 has one class for the parsers of all its serving objects: the last one made would change the others."""
    shared = getattr(serving, "parser_cls", None)
    if shared is not None and shared.__name__ == "_WrappedParser":
        names = ("reasoning_parser_cls", "tool_parser_cls")
        serving.parser_cls = type("Parsers", (shared,), {name: getattr(shared, name) for name in names})


class Oracle:
    """vLLM's OpenAIServingChat on `client`, with auto tool choice, as `vllm serve` builds it."""

    def __init__(self, client: ScriptedClient, spec: EngineSpec) -> None:
        renderer = select_binding(find_installation(), allow_untested=True).open_renderer(client, spec)
        models = OpenAIServingModels(client, [BaseModelPath(name=name, model_path=spec.model) for name in spec.names])
        self.serving = OpenAIServingChat(
            client,
            models,
            "assistant",
            **{_renderer_parameter(): renderer},
            request_logger=None,
            chat_template=None,
            chat_template_content_format="auto",
            enable_auto_tools=True,
            tool_parser=spec.tool_parser,
            reasoning_parser=spec.reasoning_parser or "",
        )
        _keep_parsers(self.serving)

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The whole chat-completion body. Raises OracleError for an error answer."""
        answer = await self._answer({**body, "stream": False})
        dumped: dict[str, Any] = answer.model_dump(exclude_unset=False)
        if "error" in dumped:
            raise OracleError(dumped["error"]["message"])
        return dumped

    async def stream(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The streamed chunks. Raises OracleError for an error answer or an error in the stream."""
        answer = await self._answer({**body, "stream": True})
        if not hasattr(answer, "__aiter__"):
            raise OracleError(answer.model_dump()["error"]["message"])
        chunks = []
        async for line in answer:
            data = line.removeprefix("data: ").strip()
            if data == "[DONE]":
                break
            chunk: dict[str, Any] = json.loads(data)
            if "error" in chunk:
                raise OracleError(chunk["error"]["message"])
            chunks.append(chunk)
        return chunks

    async def _answer(self, body: Mapping[str, Any]) -> Any:
        return await self.serving.create_chat_completion(ChatCompletionRequest.model_validate(dict(body)))
