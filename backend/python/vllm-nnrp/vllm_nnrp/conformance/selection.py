# SPDX-License-Identifier: MIT
"""Which recipes a manifest asks for: each names the capabilities it needs, a manifest declares some."""

from __future__ import annotations

from typing import Literal

from vllm_nnrp.conformance.models import Manifest, Recipe

Selection = Literal["selected", "not_claimed", "informational"]


def declared_capabilities(manifest: Manifest) -> frozenset[str]:
    """The tokens of a manifest: api.levelN, api.OPERATION, api.streaming …, api.extension.NAME."""
    tokens = {f"api.level{level}" for level in manifest.compatibility_levels}
    for operation in manifest.operations:
        tokens.add(f"api.{operation.name}")
        for flag in ("streaming", "non_streaming", "tool_calls", "cancellation"):
            if getattr(operation, flag):
                tokens.add(f"api.{flag}")
    for extension in manifest.extensions:
        tokens.add(f"api.extension.{extension.name}")
        if extension.critical:
            tokens.add(f"api.extension.{extension.name}.critical")
    return frozenset(tokens)


def required_capabilities(recipe: Recipe) -> tuple[str, ...]:
    """Those it names, sorted; one that names none needs what its request shows."""
    if recipe.required_capabilities:
        return tuple(sorted(recipe.required_capabilities))
    body, nnrp = recipe.request.body, recipe.request.nnrp or {}
    tokens = {f"api.{recipe.operation}", "api.streaming" if body.get("stream") is True else "api.non_streaming"}
    if body.get("tools"):
        tokens.add("api.tool_calls")
    if "cancel_after_events" in nnrp:
        tokens.add("api.cancellation")
    return tuple(sorted(tokens))


def selection(recipe: Recipe, declared: frozenset[str]) -> Selection:
    """Experimental and deprecated recipes are never run, only counted."""
    if recipe.status in ("experimental", "deprecated"):
        return "informational"
    return "selected" if declared.issuperset(required_capabilities(recipe)) else "not_claimed"
