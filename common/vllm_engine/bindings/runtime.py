# SPDX-License-Identifier: MIT
"""What every family does alike: requests are rendered, sampled and given their parsers in one way."""

from __future__ import annotations

import abc
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from vllm import envs
from vllm.entrypoints.chat_utils import make_tool_call_id
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionNamedToolChoiceParam,
    ChatCompletionRequest,
)
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.engine.protocol import ErrorResponse
from vllm.sampling_params import RequestOutputKind
from vllm.utils.mistral import is_mistral_tokenizer

from chatdelta import ChatRequest, GenerationRequest, InvalidRequest, PromptRequest, RequestPolicy
from vllm_engine.bindings import ChoiceParser, Rendered
from vllm_engine.chat_request import chat_request
from vllm_engine.constraints import bound_white_space, check_constraint, constraint_field
from vllm_engine.errors import naming
from vllm_engine.in_flight import InFlight
from vllm_engine.parsing import ChoiceContext, PlainText, harmony, orchestrated
from vllm_engine.pooling_tasks import PoolingTasks
from vllm_engine.prompts import begins_with_bos
from vllm_engine.sampling import Limits, check_sampling, output_budget
from vllm_engine.spec import EngineSpec

MAX_CHOICES = 16384  # vLLM's own default from 0.22 on; 0.18 has no limit


class FamilyRuntime(abc.ABC):
    """A built engine; a family's own runtime says what it does otherwise.

    `parser_class` is one like vLLM's unified parsers: it takes `(tokenizer, tools, chat_template_kwargs=,
    model_config=)` and has a `reasoning_parser` and a `tool_parser`, each perhaps None.
    """

    harmony_class: type  # a parser of this class reads token ids itself

    def __init__(self, llm: Any, spec: EngineSpec, renderer: Any, parser_class: type | None) -> None:
        self.llm = llm
        self.tokenizer = llm.renderer.get_tokenizer()
        self._model_config = llm.model_config
        self._spec = spec
        self._vllm_config = llm.vllm_config
        self._default_sampling = self._model_config.get_diff_sampling_param()
        self._limits = _limits(llm.vllm_config, self._default_sampling)
        self._end_token_ids = _end_token_ids(llm)
        self._renderer = renderer
        self._parser_class = parser_class

    def pooling(self, in_flight: InFlight, supported_tasks: Sequence[str], lora_request: Any) -> PoolingTasks:
        from vllm_engine.pooling import Pooling

        return Pooling(self.llm, in_flight, supported_tasks, lora_request)

    async def render(self, request: GenerationRequest) -> Rendered:
        if isinstance(request, ChatRequest):
            return await self._render_chat(request)
        return await self._render_prompt(request)

    # What families do otherwise

    async def rendered_chat(self, chat: ChatCompletionRequest) -> Any:
        """vLLM's (conversation, prompts) of a chat, or its ErrorResponse."""
        # With the sender cache an image that is rendered but never generated from (a count, a refused request) is
        # taken for known to the engine, and every later request with it fails.
        return await self._renderer.render_chat(chat, skip_mm_cache=True)

    def parser_kwargs(self, template_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        """What generate() gets for the engine's own reasoning parser."""
        return {"reasoning_parser_kwargs": {"chat_template_kwargs": template_kwargs}}

    def call_id_type(self) -> str:
        """vLLM's word for how this model counts its calls."""
        from vllm.entrypoints.chat_utils import get_tool_call_id_type

        return str(get_tool_call_id_type(self._model_config))

    @abc.abstractmethod
    def past_calls(self, chat: ChatCompletionRequest, conversation: Any) -> int:
        """How many calls the chat has already."""

    # What they do alike

    async def _render_chat(self, request: ChatRequest) -> Rendered:
        chat = chat_request(request)
        asked = chat.structured_outputs
        with _of_messages():
            conversation, (prompt,) = _unless_error(await self.rendered_chat(chat))
        field = constraint_field(chat, asked)  # to_sampling_params() of 0.22 writes to the request
        token_ids: list[int] = prompt["prompt_token_ids"]
        kwargs = chat.build_chat_params(None, "auto").chat_template_kwargs
        requested = chat.max_completion_tokens if chat.max_completion_tokens is not None else chat.max_tokens
        if is_mistral_tokenizer(self.tokenizer):
            chat.skip_special_tokens = True  # or its emoji break; [TOOL_CALLS] and [THINK] are kept anyway
        budget = self._budget(token_ids, requested, request.policy)
        check_sampling(chat, self._limits, budget=budget)
        sampling = chat.to_sampling_params(budget, self._default_sampling)
        check_constraint(sampling, self._vllm_config, self.tokenizer, field=field)
        bound_white_space(sampling, self._vllm_config)
        native = [self._native(chat, kwargs) for _ in range(chat.n or 1)]
        make_call_id = self._call_ids(chat, conversation)
        parsers = tuple(
            self._parser(parser, chat, token_ids, sampling, request.request_id, make_call_id) for parser in native
        )
        reasoning = native[0].reasoning_parser if native[0] is not None else None
        generate_kwargs: dict[str, Any] = {}
        if getattr(chat, "_grammar_from_tool_parser", False):  # Mistral's has the reasoning in it
            generate_kwargs["reasoning_ended"] = True
        elif reasoning is not None:  # also where it is not shown: a grammar would keep the model from it
            generate_kwargs["reasoning_ended"] = reasoning.is_reasoning_end(token_ids)
        if reasoning is not None:
            generate_kwargs |= self.parser_kwargs(kwargs)
        names_tool = isinstance(chat.tool_choice, ChatCompletionNamedToolChoiceParam)
        return Rendered(prompt, token_ids, sampling, parsers, generate_kwargs, names_tool)

    async def _render_prompt(self, request: PromptRequest) -> Rendered:
        body = request.body
        completion = CompletionRequest.model_validate({**body, "stream": True})
        if body.get("max_tokens") is None:
            completion.max_tokens = None  # no limit; vLLM would put OpenAI's default of 16 here
        if isinstance(completion.prompt, str) and begins_with_bos(completion.prompt, self.tokenizer):
            completion.add_special_tokens = False
        prompts = _unless_error(await self._renderer.render_completion(completion))
        if len(prompts) != 1:
            raise InvalidRequest("exactly one prompt is served per request", param="prompt")
        token_ids: list[int] = prompts[0]["prompt_token_ids"]
        budget = self._budget(token_ids, completion.max_tokens, request.policy)
        check_sampling(completion, self._limits, budget=budget)
        sampling = completion.to_sampling_params(budget, self._default_sampling)
        check_constraint(sampling, self._vllm_config, self.tokenizer, field="structured_outputs")
        bound_white_space(sampling, self._vllm_config)
        sampling.output_kind = RequestOutputKind.DELTA
        return Rendered(prompts[0], token_ids, sampling, tuple(PlainText() for _ in range(completion.n or 1)))

    def _native(self, chat: ChatCompletionRequest, kwargs: Mapping[str, Any] | None) -> Any:
        """The native parsers of one choice, or None."""
        if self._parser_class is None:
            return None
        return self._parser_class(
            self.tokenizer, chat.tools, chat_template_kwargs=kwargs, model_config=self._model_config
        )

    def _parser(
        self,
        native: Any,
        chat: ChatCompletionRequest,
        token_ids: list[int],
        sampling: Any,
        request_id: str,
        make_call_id: Callable[[str, int], str],
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
            make_call_id=make_call_id,
        )
        return harmony(context) if isinstance(native, self.harmony_class) else orchestrated(context)

    def _call_ids(self, chat: ChatCompletionRequest, conversation: Any) -> Callable[[str, int], str]:
        """The family's rule for ids: Mistral's nine characters, Kimi's running number, else random."""
        if is_mistral_tokenizer(self.tokenizer):
            from vllm.tool_parsers.mistral_tool_parser import MistralToolCall

            return lambda name, index: str(MistralToolCall.generate_random_id())
        id_type = self.call_id_type()
        before = self.past_calls(chat, conversation) if id_type == "kimi_k2" else 0
        return lambda name, index: str(make_tool_call_id(id_type=id_type, func_name=name, idx=before + index))

    def _budget(self, token_ids: list[int], requested: int | None, policy: RequestPolicy) -> int:
        override = None
        if self._model_config.generation_config not in ("auto", "vllm"):
            override = self._default_sampling.get("max_tokens")
        else:
            override = (self._model_config.override_generation_config or {}).get("max_new_tokens")
        return output_budget(
            room=self._model_config.max_model_len - len(token_ids),
            requested=requested,
            default=None if policy.fills_context else self._default_sampling.get("max_tokens"),
            override=override,
        )


def _end_token_ids(llm: Any) -> frozenset[int]:
    """The tokens a model of this engine ends its answer with."""
    more = llm.model_config.try_get_generation_config().get("eos_token_id")
    ids = [llm.renderer.get_eos_token_id(), *(more if isinstance(more, list) else [more])]
    return frozenset(token_id for token_id in ids if token_id is not None)


def _limits(vllm_config: Any, default_sampling: Mapping[str, Any]) -> Limits:
    reasoning = getattr(vllm_config, "reasoning_config", None)  # 0.18 has none
    return Limits(
        vocab_size=vllm_config.model_config.get_vocab_size(),
        max_logprobs=vllm_config.model_config.max_logprobs,
        max_choices=getattr(envs, "VLLM_MAX_N_SEQUENCES", MAX_CHOICES),
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
