# SPDX-License-Identifier: MIT
"""vLLM 0.26: `OnlineRenderer` renders, `ParserManager`'s unified parser parses, `AsyncLLM` generates."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vllm.entrypoints.chat_utils import get_tool_call_id_type, make_tool_call_id
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionNamedToolChoiceParam,
    ChatCompletionRequest,
)
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.engine.protocol import ErrorResponse
from vllm.parser import ParserManager
from vllm.parser.harmony import HarmonyParser
from vllm.parser.utils import count_history_tool_calls
from vllm.reasoning import ReasoningParserManager
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.sampling_params import RequestOutputKind
from vllm.tool_parsers import ToolParserManager
from vllm.utils.mistral import is_mistral_tokenizer
from vllm.v1.engine.async_llm import AsyncLLM

from chatdelta import ChatRequest, GenerationRequest, InvalidRequest
from vllm_engine.args import unknown_name
from vllm_engine.bindings import ChoiceParser, Rendered, Runtime
from vllm_engine.errors import for_peer
from vllm_engine.parsing import ChoiceContext, PlainText, harmony, orchestrated
from vllm_engine.sampling import output_budget
from vllm_engine.spec import EngineSpec
from vllm_engine.thinking import under_both_names

log = logging.getLogger(__name__)
GENERATE_PARAMETERS = ("trace_headers", "priority", "reasoning_ended", "reasoning_parser_kwargs")


def missing_features() -> list[str]:
    """What this binding needs and the installed vLLM lacks."""
    parameters = inspect.signature(AsyncLLM.generate).parameters
    missing = [f"AsyncLLM.generate({name}=)" for name in GENERATE_PARAMETERS if name not in parameters]
    if not hasattr(ParserManager, "get_parser"):
        missing.append("ParserManager.get_parser")
    if not hasattr(OnlineRenderer, "render_chat"):
        missing.append("OnlineRenderer.render_chat")
    return missing


class Binding026:
    family = "0.26"

    def check_parsers(self, spec: EngineSpec) -> None:
        managers = (
            ("tool parser", spec.tool_parser, ToolParserManager.get_tool_parser, ToolParserManager),
            ("reasoning parser", spec.reasoning_parser, ReasoningParserManager.get_reasoning_parser, None),
        )
        for kind, name, get, manager in managers:
            if name is None:
                continue
            try:
                get(name)
            except KeyError as exc:
                known = (manager or ReasoningParserManager).list_registered()
                raise InvalidRequest(
                    f"{unknown_name(kind, name, known)} (known: {', '.join(sorted(known))})", param=kind
                ) from exc
            except ImportError as exc:
                raise InvalidRequest(f"{kind} {name!r} cannot be imported: {for_peer(str(exc))}", param=kind) from exc

    def build(self, spec: EngineSpec, engine_args: Any, stat_loggers: Sequence[Any]) -> Runtime:
        llm = AsyncLLM.from_engine_args(engine_args, stat_loggers=list(stat_loggers) or None)
        try:
            return Runtime026(llm, spec)
        except BaseException:
            llm.shutdown()
            raise


class Runtime026:
    """The built engine of this family."""

    def __init__(self, llm: AsyncLLM, spec: EngineSpec) -> None:
        self.llm = llm
        self.tokenizer = llm.renderer.get_tokenizer()
        self._model_config = llm.model_config
        self._spec = spec
        self._default_sampling = self._model_config.get_diff_sampling_param()
        self._end_token_ids = _end_token_ids(llm)
        self._renderer = OnlineRenderer(
            self._model_config,
            llm.renderer,
            request_logger=None,
            chat_template=None,
            chat_template_content_format="auto",
            enable_auto_tools=True,
            tool_parser=spec.tool_parser,
            reasoning_parser=spec.reasoning_parser,
        )

    async def render(self, request: GenerationRequest) -> Rendered:
        if isinstance(request, ChatRequest):
            return await self._render_chat(request)
        return await self._render_prompt(request.body)

    async def _render_chat(self, request: ChatRequest) -> Rendered:
        chat = ChatCompletionRequest.model_validate(_streaming(request))
        # With the sender cache an image that is rendered but never generated from (a count, a refused request) is
        # taken for known to the engine, and every later request with it fails.
        _, (prompt,) = _unless_error(await self._renderer.render_chat(chat, skip_mm_cache=True))
        token_ids: list[int] = prompt["prompt_token_ids"]
        kwargs = chat.build_chat_params(None, "auto").chat_template_kwargs
        requested = chat.max_completion_tokens if chat.max_completion_tokens is not None else chat.max_tokens
        if is_mistral_tokenizer(self.tokenizer):
            chat.skip_special_tokens = True  # or its emoji break; [TOOL_CALLS] and [THINK] are kept anyway
        sampling = chat.to_sampling_params(self._budget(token_ids, requested), self._default_sampling)
        native = [self._native(chat, kwargs) for _ in range(chat.n or 1)]
        parsers = tuple(self._parser(parser, chat, token_ids, sampling, request.request_id) for parser in native)
        reasoning = native[0].reasoning_parser if native[0] is not None else None
        generate_kwargs: dict[str, Any] = {}
        if not chat.include_reasoning or chat._grammar_from_tool_parser:
            generate_kwargs["reasoning_ended"] = True
        elif reasoning is not None:
            generate_kwargs["reasoning_ended"] = reasoning.is_reasoning_end(token_ids)
        if reasoning is not None:
            generate_kwargs["reasoning_parser_kwargs"] = {"chat_template_kwargs": kwargs}
        names_tool = isinstance(chat.tool_choice, ChatCompletionNamedToolChoiceParam)
        return Rendered(prompt, token_ids, sampling, parsers, generate_kwargs, names_tool)

    async def _render_prompt(self, body: Any) -> Rendered:
        completion = CompletionRequest.model_validate({**body, "stream": True})
        if body.get("max_tokens") is None:
            completion.max_tokens = None  # no limit; vLLM would put OpenAI's default of 16 here
        bos = self.tokenizer.bos_token
        if isinstance(completion.prompt, str) and bos and completion.prompt.startswith(bos):
            completion.add_special_tokens = False  # the text has its BOS already; a second one changes the answer
        prompts = _unless_error(await self._renderer.render_completion(completion))
        if len(prompts) != 1:
            raise InvalidRequest("exactly one prompt is served per request", param="prompt")
        token_ids: list[int] = prompts[0]["prompt_token_ids"]
        sampling = completion.to_sampling_params(self._budget(token_ids, completion.max_tokens), self._default_sampling)
        sampling.output_kind = RequestOutputKind.DELTA
        return Rendered(prompts[0], token_ids, sampling, tuple(PlainText() for _ in range(completion.n or 1)))

    def _native(self, chat: ChatCompletionRequest, kwargs: dict[str, Any]) -> Any:
        """A unified parser of vLLM, or None; it brings the reasoning and tool parser objects."""
        parser_cls = self._renderer.parser
        if parser_cls is None:
            return None
        return parser_cls(self.tokenizer, chat.tools, chat_template_kwargs=kwargs, model_config=self._model_config)

    def _parser(
        self, native: Any, chat: ChatCompletionRequest, token_ids: list[int], sampling: Any, request_id: str
    ) -> ChoiceParser:
        if native is None:
            return PlainText()
        context = ChoiceContext(
            request=chat,
            request_id=request_id,
            parser=native,
            tool_parser_name=self._spec.tool_parser,
            tokenizer=self.tokenizer,
            prompt_token_ids=token_ids,
            sampling_params=sampling,
            end_token_ids=self._end_token_ids | set(chat.stop_token_ids or ()),
            make_call_id=self._call_ids(chat),
        )
        return harmony(context) if isinstance(native, HarmonyParser) else orchestrated(context)

    def _call_ids(self, chat: ChatCompletionRequest) -> Callable[[str, int], str]:
        """The family's rule for ids: Mistral's nine characters, Kimi's running number, else random."""
        if is_mistral_tokenizer(self.tokenizer):
            from vllm.tool_parsers.mistral_tool_parser import MistralToolCall

            return lambda name, index: str(MistralToolCall.generate_random_id())
        id_type = get_tool_call_id_type(self._model_config)
        before = count_history_tool_calls(chat) if id_type == "kimi_k2" else 0
        return lambda name, index: str(make_tool_call_id(id_type=id_type, func_name=name, idx=before + index))

    def _budget(self, token_ids: list[int], requested: int | None) -> int:
        override = None
        if self._model_config.generation_config not in ("auto", "vllm"):
            override = self._default_sampling.get("max_tokens")
        else:
            override = (self._model_config.override_generation_config or {}).get("max_new_tokens")
        return output_budget(
            room=self._model_config.max_model_len - len(token_ids),
            requested=requested,
            default=self._default_sampling.get("max_tokens"),
            override=override,
        )


def _end_token_ids(llm: Any) -> frozenset[int]:
    """The tokens a model of this engine ends its answer with."""
    more = llm.model_config.try_get_generation_config().get("eos_token_id")
    ids = [llm.renderer.get_eos_token_id(), *(more if isinstance(more, list) else [more])]
    return frozenset(token_id for token_id in ids if token_id is not None)


def _streaming(request: ChatRequest) -> dict[str, Any]:
    """The body with deltas switched on, whatever its client wanted, the cache salt, and the thinking switch."""
    body = {**request.body, "stream": True}
    if isinstance(kwargs := body.get("chat_template_kwargs"), Mapping):
        body["chat_template_kwargs"] = under_both_names(kwargs)
    if request.policy.cache_salt is not None:
        body["cache_salt"] = request.policy.cache_salt
    return body


def _unless_error(result: Any) -> Any:
    """vLLM's renderer returns its refusals; ours are raised."""
    if isinstance(result, ErrorResponse):
        raise InvalidRequest(for_peer(result.error.message), param=result.error.param)
    return result


BINDING = Binding026()
