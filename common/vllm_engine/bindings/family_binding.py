# SPDX-License-Identifier: MIT
"""A family's Binding, made of what is the family's own: its runtime, its renderer, its parser class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from vllm.reasoning import ReasoningParserManager
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.tool_parsers import ToolParserManager
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from chatdelta import InvalidRequest
from vllm_engine.args import unknown_name
from vllm_engine.bindings import Runtime
from vllm_engine.bindings.families import PARSER_BEFORE, families_with
from vllm_engine.errors import for_peer
from vllm_engine.parser_pair import refuse_unusable, take_tools
from vllm_engine.spec import EngineSpec


@dataclass(frozen=True, slots=True)
class FamilyBinding:
    """`parser_class(spec, model_config)` gives the class of the native parsers of one choice, or None."""

    family: str
    make_runtime: Callable[[Any, EngineSpec, Any], Runtime]  # (engine client, spec, renderer)
    open_renderer: Callable[[Any, EngineSpec], Any]
    parser_class: Callable[[EngineSpec, Any], type | None]
    engine_defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

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
                raise InvalidRequest(self._unknown(kind, name, known), param=kind) from exc
            except ImportError as exc:
                raise InvalidRequest(f"{kind} {name!r} cannot be imported: {for_peer(str(exc))}", param=kind) from exc

    def _unknown(self, kind: str, name: str, known: Sequence[str]) -> str:
        if self.family not in (others := families_with(kind, name)):
            before = PARSER_BEFORE.get(name)
            hint = f"; {before} came before it" if before in known else ""
            return f"{kind} {name!r} is not in vLLM {self.family}, but in vLLM {' and '.join(others)}{hint}"
        return f"{unknown_name(kind, name, known)} (known: {', '.join(sorted(known))})"

    def build(self, spec: EngineSpec, engine_args: Any, stat_loggers: Sequence[Any]) -> Runtime:
        config = engine_args.create_engine_config(UsageContext.ENGINE_CONTEXT)
        self._refuse_unusable_parsers(spec, config.model_config)
        llm = AsyncLLM.from_vllm_config(
            config,
            stat_loggers=list(stat_loggers) or None,
            enable_log_requests=engine_args.enable_log_requests,
            disable_log_stats=engine_args.disable_log_stats,
        )
        try:
            return self.borrow(llm, None, spec)
        except BaseException:
            llm.shutdown()
            raise

    def borrow(self, client: Any, renderer: Any, spec: EngineSpec) -> Runtime:
        return self.make_runtime(client, spec, renderer or self.open_renderer(client, spec))

    def _refuse_unusable_parsers(self, spec: EngineSpec, model_config: Any) -> None:
        """Before minutes are spent on the weights."""
        pair = self.parser_class(spec, model_config)
        take_tools(pair)
        if pair is not None:
            refuse_unusable(pair, spec, cached_tokenizer_from_config(model_config), model_config)
