# SPDX-License-Identifier: MIT
"""What to load, as a value: made by the command line or by LoadModel, before anything of vLLM is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from chatdelta import InvalidRequest


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine to build.

    Applied in this order, each before the engine exists: `engine_args` (typed values by EngineArgs field name), then
    `flags` (command-line style, `--enable-prefix-caching` → name without dashes and its text or None), then
    `engine_args_json` (the object LocalAI sends). A name no EngineArgs field has is refused with the closest one.
    """

    model: str  # a folder, or a hub id
    served_names: tuple[str, ...] = ()  # the names requests may use; empty: `model`
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    engine_args: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    flags: tuple[tuple[str, str | None], ...] = ()
    engine_args_json: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def names(self) -> tuple[str, ...]:
        return self.served_names or (self.model,)

    def key(self) -> str:
        """Equal for specs that build the same engine."""
        return repr(
            (
                self.model,
                self.served_names,
                self.tool_parser,
                self.reasoning_parser,
                sorted(self.engine_args.items()),
                self.flags,
                sorted(self.engine_args_json.items()),
            )
        )


def refuse_unservable(spec: EngineSpec) -> None:
    """Raise InvalidRequest at once for a model this backend cannot serve: LocalAI offers every model to everyone.

    The message names the model as it was given, not a path of this machine beyond that.
    """
    name = Path(spec.model).name
    if not spec.model:
        raise InvalidRequest("no model was named", code="missing_model", param="model")
    if spec.model.lower().endswith((".gguf", ".ggml")):
        raise InvalidRequest(f"{name} is a GGUF file; this backend serves Hugging Face model folders", param="model")
    path = Path(spec.model)
    looks_like_path = path.is_absolute() or spec.model.startswith((".", "~"))
    if looks_like_path and not path.exists():
        raise InvalidRequest(f"model not found: {spec.model}", code="model_not_found", param="model")
    if path.is_file():
        raise InvalidRequest(f"{name} is a file; this backend serves Hugging Face model folders", param="model")
    if path.is_dir() and not (path / "config.json").is_file():
        raise InvalidRequest(f"{name} has no config.json: not a Hugging Face model folder", param="model")
