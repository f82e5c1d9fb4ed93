# SPDX-License-Identifier: MIT
"""vLLM 0.26: `OnlineRenderer` renders, `ParserManager`'s unified parser parses, `AsyncLLM` generates."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from vllm import envs
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
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.tool_parsers import ToolParserManager
from vllm.usage.usage_lib import UsageContext
from vllm.utils.mistral import is_mistral_tokenizer
from vllm.v1.engine.async_llm import AsyncLLM

from chatdelta import ChatRequest, GenerationRequest, InvalidRequest
from vllm_engine.args import unknown_name
from vllm_engine.bindings import ChoiceParser, Rendered, Runtime
from vllm_engine.chat_request import chat_request
from vllm_engine.constraints import bound_white_space, check_constraint, constraint_field
from vllm_engine.errors import for_peer, naming
from vllm_engine.parser_pair import refuse_unusable, take_tools
from vllm_engine.parsing import ChoiceContext, PlainText, harmony, orchestrated
from vllm_engine.prompts import begins_with_bos
from vllm_engine.sampling import Limits, check_sampling, output_budget
from vllm_engine.spec import EngineSpec

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
        config = engine_args.create_engine_config(UsageContext.ENGINE_CONTEXT)
        _refuse_unusable_parsers(spec, config.model_config)
        llm = AsyncLLM.from_vllm_config(
            config,
            stat_loggers=list(stat_loggers) or None,
            enable_log_requests=engine_args.enable_log_requests,
            disable_log_stats=engine_args.disable_log_stats,
        )
        try:
            return Runtime026(llm, spec)
        except BaseException:
            llm.shutdown()
            raise

    def borrow(self, client: Any, renderer: Any, spec: EngineSpec) -> Runtime:
        return Runtime026(client, spec, renderer)


def _refuse_unusable_parsers(spec: EngineSpec, model_config: Any) -> None:
    """Before minutes are spent on the weights."""
    pair = ParserManager.get_parser(
        spec.tool_parser,
        spec.reasoning_parser,
        enable_auto_tools=True,
        is_harmony=model_config.hf_config.model_type == "gpt_oss",
    )
    take_tools(pair)
    if pair is not None:
        refuse_unusable(pair, spec, cached_tokenizer_from_config(model_config), model_config)


class Runtime026:
    """The built engine of this family."""

    def __init__(self, llm: AsyncLLM, spec: EngineSpec, renderer: OnlineRenderer | None = None) -> None:
        self.llm = llm
        self.tokenizer = llm.renderer.get_tokenizer()
        self._model_config = llm.model_config
        self._spec = spec
        self._vllm_config = llm.vllm_config
        self._default_sampling = self._model_config.get_diff_sampling_param()
        self._limits = _limits(llm.vllm_config, self._default_sampling)
        self._end_token_ids = _end_token_ids(llm)
        self._renderer = renderer or _own_renderer(llm, spec)
        take_tools(self._renderer.parser)

    async def render(self, request: GenerationRequest) -> Rendered:
        if isinstance(request, ChatRequest):
            return await self._render_chat(request)
        return await self._render_prompt(request.body)

    async def _render_chat(self, request: ChatRequest) -> Rendered:
        chat = chat_request(request)
        asked = chat.structured_outputs
        # With the sender cache an image that is rendered but never generated from (a count, a refused request) is
        # taken for known to the engine, and every later request with it fails.
        with _of_messages():
            _, (prompt,) = _unless_error(await self._renderer.render_chat(chat, skip_mm_cache=True))
        token_ids: list[int] = prompt["prompt_token_ids"]
        kwargs = chat.build_chat_params(None, "auto").chat_template_kwargs
        requested = chat.max_completion_tokens if chat.max_completion_tokens is not None else chat.max_tokens
        if is_mistral_tokenizer(self.tokenizer):
            chat.skip_special_tokens = True  # or its emoji break; [TOOL_CALLS] and [THINK] are kept anyway
        budget = self._budget(token_ids, requested)
        check_sampling(chat, self._limits, budget=budget)
        sampling = chat.to_sampling_params(budget, self._default_sampling)
        check_constraint(sampling, self._vllm_config, self.tokenizer, field=constraint_field(chat, asked))
        bound_white_space(sampling, self._vllm_config)
        native = [self._native(chat, kwargs) for _ in range(chat.n or 1)]
        parsers = tuple(self._parser(parser, chat, token_ids, sampling, request.request_id) for parser in native)
        reasoning = native[0].reasoning_parser if native[0] is not None else None
        generate_kwargs: dict[str, Any] = {}
        if chat._grammar_from_tool_parser:  # Mistral's has the reasoning in it
            generate_kwargs["reasoning_ended"] = True
        elif reasoning is not None:  # also where it is not shown: a grammar would keep the model from it
            generate_kwargs["reasoning_ended"] = reasoning.is_reasoning_end(token_ids)
        if reasoning is not None:
            generate_kwargs["reasoning_parser_kwargs"] = {"chat_template_kwargs": kwargs}
        names_tool = isinstance(chat.tool_choice, ChatCompletionNamedToolChoiceParam)
        return Rendered(prompt, token_ids, sampling, parsers, generate_kwargs, names_tool)

    async def _render_prompt(self, body: Any) -> Rendered:
        completion = CompletionRequest.model_validate({**body, "stream": True})
        if body.get("max_tokens") is None:
            completion.max_tokens = None  # no limit; vLLM would put OpenAI's default of 16 here
        if isinstance(completion.prompt, str) and begins_with_bos(completion.prompt, self.tokenizer):
            completion.add_special_tokens = False
        prompts = _unless_error(await self._renderer.render_completion(completion))
        if len(prompts) != 1:
            raise InvalidRequest("exactly one prompt is served per request", param="prompt")
        token_ids: list[int] = prompts[0]["prompt_token_ids"]
        budget = self._budget(token_ids, completion.max_tokens)
        check_sampling(completion, self._limits, budget=budget)
        sampling = completion.to_sampling_params(budget, self._default_sampling)
        check_constraint(sampling, self._vllm_config, self.tokenizer, field="structured_outputs")
        bound_white_space(sampling, self._vllm_config)
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


def _own_renderer(llm: AsyncLLM, spec: EngineSpec) -> OnlineRenderer:
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


def _end_token_ids(llm: Any) -> frozenset[int]:
    """The tokens a model of this engine ends its answer with."""
    more = llm.model_config.try_get_generation_config().get("eos_token_id")
    ids = [llm.renderer.get_eos_token_id(), *(more if isinstance(more, list) else [more])]
    return frozenset(token_id for token_id in ids if token_id is not None)


def _limits(vllm_config: Any, default_sampling: Mapping[str, Any]) -> Limits:
    reasoning = vllm_config.reasoning_config
    return Limits(
        vocab_size=vllm_config.model_config.get_vocab_size(),
        max_logprobs=vllm_config.model_config.max_logprobs,
        max_choices=envs.VLLM_MAX_N_SEQUENCES,
        default_temperature=default_sampling.get("temperature", 1.0),
        counts_thinking=reasoning is not None and bool(reasoning.enabled),
        speculates=vllm_config.speculative_config is not None,
    )


def _unless_error(result: Any) -> Any:
    """vLLM's renderer returns its refusals; ours are raised."""
    if isinstance(result, ErrorResponse):
        param = result.error.param or "tool_choice"  # all that is left of what it refuses without a name
        raise InvalidRequest(naming(param, result.error.message), code="invalid_body", param=param)
    return result


@contextlib.contextmanager
def _of_messages() -> Iterator[None]:
    """A refusal without a name is the template's, of the messages it was given."""
    try:
        yield
    except json.JSONDecodeError as exc:
        finding = "the model's template takes only arguments of past tool calls that are JSON"
        raise InvalidRequest(f"messages: {finding}", code="invalid_body", param="messages") from exc
    except ValueError as exc:
        if isinstance(exc, ValidationError) or getattr(exc, "parameter", None) is not None:
            raise
        raise InvalidRequest(naming("messages", str(exc)), code="invalid_body", param="messages") from exc


BINDING = Binding026()
