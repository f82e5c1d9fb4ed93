# SPDX-License-Identifier: MIT
"""The seam that hides what differs between vLLM's minor lines; one module per tested family.

Choosing one never imports vLLM for an unsupported version: the version comes from the package metadata. After that,
features are probed, since a patch release may differ from its anchor.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from chatdelta import GenerationRequest
from vllm_engine.bindings.probing import require_family, require_features, untested_note
from vllm_engine.calls.sink import Said
from vllm_engine.in_flight import InFlight
from vllm_engine.installation import Installation
from vllm_engine.pooling_tasks import PoolingTasks
from vllm_engine.spec import EngineSpec

log = logging.getLogger(__name__)


class ChoiceParser(Protocol):
    """The native parsers of one choice, driven one token at a time."""

    def feed(self, text: str, token_id: int | None, *, finished: bool) -> Said:
        """Content, reasoning and tool-call fragments of one token; only those fields are set.

        Never raises for what a native parser does: from the point it failed on, text is plain content and the delta
        says so once in `parser_failure`.
        """

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of the reasoning so far, without the tag that ends it. Counted when a token's text is known."""

    @property
    def called_tools(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rendered:
    """One request, ready for `AsyncLLM.generate`."""

    prompt: Any
    prompt_token_ids: Sequence[int]
    sampling_params: Any
    parsers: tuple[ChoiceParser, ...]  # one per choice
    generate_kwargs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    names_tool: bool = False  # tool_choice names one function: OpenAI then says "stop", not "tool_calls"


class Runtime(Protocol):
    """A built engine and what turns requests into its inputs."""

    @property
    def llm(self) -> Any: ...  # vllm.v1.engine.async_llm.AsyncLLM
    @property
    def tokenizer(self) -> Any: ...
    async def render(self, request: GenerationRequest) -> Rendered: ...

    def pooling(self, in_flight: InFlight, supported_tasks: Sequence[str], lora_request: Any) -> PoolingTasks:
        """Embeddings and relevance; without a task where the model or this vLLM has none."""


class Binding(Protocol):
    """One vLLM family."""

    family: str
    engine_defaults: Mapping[str, Any]
    """Engine arguments that this family needs to be right, where the user says nothing else."""

    def check_parsers(self, spec: EngineSpec) -> None:
        """Raise InvalidRequest for a parser name this vLLM does not have or cannot import."""

    def build(self, spec: EngineSpec, engine_args: Any, stat_loggers: Sequence[Any]) -> Runtime:
        """Build the engine; blocking, for a worker thread."""

    def borrow(self, client: Any, renderer: Any, spec: EngineSpec) -> Runtime:
        """Use another server's engine, with that server's renderer (None: one of our own)."""

    def open_renderer(self, client: Any, spec: EngineSpec) -> Any:
        """vLLM's object of this family that renders chats, on an engine client."""


def select_binding(installation: Installation, *, allow_untested: bool = False) -> Binding:
    """The binding of the installed vLLM; the newest for a newer vLLM, if that is allowed, and a warning in the log.

    Raises BackendFailure naming version, missing feature and tested anchors.
    """
    family = require_family(installation, allow_untested=allow_untested)
    require_features(installation, family)
    if note := untested_note(installation):
        log.warning("%s", note)
    binding: Binding = importlib.import_module(family.module).BINDING
    return binding
