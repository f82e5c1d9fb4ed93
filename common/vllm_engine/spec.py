# SPDX-License-Identifier: MIT
"""What to load, as a value: made by the command line or by LoadModel, before anything of vLLM is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

NOTHING: Mapping[str, Any] = MappingProxyType({})
BASE_NAME = "base"  # how a request asks for the model without its adapter


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter: the name a request may ask for it by, and its folder."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine to build.

    Applied in this order, each before the engine exists: `defaults` and `engine_args` (typed values by EngineArgs field
    name), then `flags` (command-line style, `--enable-prefix-caching` → name without dashes and its text or None), then
    `engine_args_json` (the object LocalAI sends). A name no EngineArgs field has is refused with the closest one.
    """

    model: str  # a folder, or a hub id
    served_names: tuple[str, ...] = ()  # the names requests may use; empty: `model`
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    adapters: tuple[Adapter, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    engine_args: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    flags: tuple[tuple[str, str | None], ...] = ()
    engine_args_json: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    def adapters_by_name(self) -> Mapping[str, Adapter | None]:
        """The adapter of a request, by the model it names; None is the model as it is. Empty without adapters.

        The served names stand for the model with its first adapter, since who loads a model with one wants that.
        """
        if not self.adapters:
            return NOTHING
        others: dict[str, Adapter | None] = {BASE_NAME: None, **{adapter.name: adapter for adapter in self.adapters}}
        return others | dict.fromkeys(self._served, self.adapters[0])

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a request may use for its model; the first is the default."""
        return tuple(dict.fromkeys((*self._served, *self.adapters_by_name())))

    @property
    def _served(self) -> tuple[str, ...]:
        return self.served_names or (self.model,)

    def said(self) -> frozenset[str]:
        """The engine arguments somebody asked for, whatever their values: what no default may fill."""
        flags = (name.replace("-", "_") for name, _ in self.flags)
        names = {name for flag in flags for name in (flag, flag.removeprefix("no_"))}
        return frozenset(names | self.engine_args.keys() | self.engine_args_json.keys())

    def key(self) -> str:
        """Equal for specs that build the same engine."""
        return repr(
            (
                self.model,
                self.served_names,
                self.tool_parser,
                self.reasoning_parser,
                self.adapters,
                sorted(self.defaults.items()),
                sorted(self.engine_args.items()),
                self.flags,
                sorted(self.engine_args_json.items()),
            )
        )
