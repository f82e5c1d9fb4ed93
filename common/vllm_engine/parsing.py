# SPDX-License-Identifier: MIT
"""Which parser a choice gets: plain text, harmony's own, or the orchestrator on vLLM's own parsers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_engine.alignment import Aligner, fast_backend, token_decoder
from vllm_engine.calls import CallReader, NamedArguments, RequiredCalls, Said, Sink, native_calls, native_text
from vllm_engine.harmony import Harmony
from vllm_engine.orchestrator import Orchestrator, Parts
from vllm_engine.reasoning import NativeReasoning, ReasoningReader
from vllm_engine.whole_reasoning import WholeTextReasoning


class PlainText:
    """No parser: every text is content."""

    reasoning_tokens = 0
    called_tools = False

    def feed(self, text: str, token_id: int | None, *, finished: bool) -> Said:
        return Said(text)


@dataclass(frozen=True, slots=True)
class ChoiceContext:
    """What building a choice's parser takes; `request` is vLLM's ChatCompletionRequest, `parser` its unified Parser."""

    request: Any
    request_id: str
    parser: Any
    tool_parser_name: str | None
    tokenizer: Any
    prompt_token_ids: Sequence[int]
    sampling_params: Any
    end_token_ids: Collection[int]
    make_call_id: Callable[[str, int], str]


def orchestrated(context: ChoiceContext) -> Orchestrator:
    """The parser of one choice, for every family but harmony."""
    sink = _sink(context)
    parts = Parts(
        sink,
        _reasoning(context),
        _call_reader(sink, context),
        _aligner(context),
    )
    return Orchestrator(
        parts,
        end_token_ids=context.end_token_ids,
        request_id=context.request_id,
        include_reasoning=context.request.include_reasoning,
    )


def _reasoning(context: ChoiceContext) -> ReasoningReader | None:
    native = context.parser.reasoning_parser
    if native is None:
        return None
    if hasattr(native, "fast_think_ids"):  # Hunyuan A13B's
        return WholeTextReasoning(native)
    return NativeReasoning(native, context.prompt_token_ids)


def _sink(context: ChoiceContext) -> Sink:
    return Sink(
        context.make_call_id,
        max_calls=1 if context.request.parallel_tool_calls is False else None,
        may_call=_may_call(context),
    )


def _may_call(context: ChoiceContext) -> bool:
    request = context.request
    return context.parser.tool_parser is not None and bool(request.tools) and request.tool_choice != "none"


def _aligner(context: ChoiceContext) -> Aligner | None:
    """Only where the engine's deltas do not bring each token with its own text."""
    params = context.sampling_params
    if not params.stop and fast_backend(context.tokenizer) is not None:
        return None
    return Aligner(token_decoder(context.tokenizer, skip_special_tokens=params.skip_special_tokens))


def _call_reader(sink: Sink, context: ChoiceContext) -> CallReader | None:
    request, native = context.request, context.parser.tool_parser
    family = context.tool_parser_name or ""
    if not _may_call(context):
        return native_text(family, sink, native, request)
    # Such a parser's required and named calls are bare JSON (0.18: all), others' are constrained to their own markup.
    takes_json = getattr(native, "supports_required_and_named", True)
    if takes_json and not getattr(request, "_grammar_from_tool_parser", False):
        if request.tool_choice == "required":
            return RequiredCalls(sink, {tool.function.name for tool in request.tools})
        if hasattr(request.tool_choice, "function"):
            return NamedArguments(sink, request.tool_choice.function.name)
    return native_calls(family, sink, native, context.tokenizer, request)


def harmony(context: ChoiceContext) -> Harmony:
    """The parser of one choice of gpt-oss."""
    return Harmony(
        context.parser,
        context.request,
        _sink(context),
        _aligner(context),
        end_token_ids=context.end_token_ids,
        request_id=context.request_id,
    )
