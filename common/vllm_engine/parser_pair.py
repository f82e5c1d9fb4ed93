# SPDX-License-Identifier: MIT
"""The native parsers that a model is loaded with, tried once on its tokenizer: a request is too late to find out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Parameter
from typing import Any

from chatdelta import InvalidRequest
from vllm_engine.errors import for_peer
from vllm_engine.spec import EngineSpec

POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


def taking_tools(tool_parser: type) -> type:
    """A class that takes `(tokenizer, tools)`, as vLLM calls it; one written for vLLM 0.18 takes no tools."""
    positional = [each for each in inspect.signature(tool_parser).parameters.values() if each.kind in POSITIONAL]
    if len(positional) > 1 or any(each.kind is Parameter.VAR_POSITIONAL for each in positional):
        return tool_parser

    class WithTools(tool_parser):  # type: ignore[misc]  # known at run time only
        def __init__(self, tokenizer: Any, tools: Any = None) -> None:
            super().__init__(tokenizer)

    return WithTools


def take_tools(pair: Any) -> None:
    """Make vLLM's unified parser class hold a tool parser that it can build; None is no parser."""
    if pair is not None and pair.tool_parser_cls is not None:
        pair.tool_parser_cls = taking_tools(pair.tool_parser_cls)


def refuse_unusable(pair: Any, spec: EngineSpec, tokenizer: Any, model_config: Any) -> None:
    """Build a parser of vLLM's unified class, first its halves, then the whole.

    Raises InvalidRequest with the name of what cannot be built and the reason.
    """
    if pair.reasoning_parser_cls is not None:
        with _naming("reasoning parser", spec.reasoning_parser):
            pair.reasoning_parser_cls(tokenizer, chat_template_kwargs={})
    if pair.tool_parser_cls is not None:
        with _naming("tool parser", spec.tool_parser):
            pair.tool_parser_cls(tokenizer, None)
    with _naming("parsers", f"{spec.tool_parser} and {spec.reasoning_parser}"):
        pair(tokenizer, None, chat_template_kwargs={}, model_config=model_config)


@contextmanager
def _naming(kind: str, name: str | None) -> Iterator[None]:
    try:
        yield
    except Exception as exc:  # each parser has its own way to say that a tokenizer lacks its tokens
        reason = for_peer(str(exc)) or type(exc).__name__
        raise InvalidRequest(f"{kind} {name!r} cannot be used with this model: {reason}", param=kind) from exc
