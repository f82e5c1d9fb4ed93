# SPDX-License-Identifier: MIT
"""From recipes to an execution plan: what is selected for a manifest, with its parameters filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import get_args

from vllm_nnrp.conformance.models import (
    PROFILE,
    SCHEMA_VERSION,
    SCHEMAS,
    Artifacts,
    Case,
    Coverage,
    Manifest,
    Plan,
    Recipe,
    Status,
    Statuses,
    Summary,
)
from vllm_nnrp.conformance.recipes import ConformanceError, check_parameters, filled
from vllm_nnrp.conformance.selection import Selection, declared_capabilities, required_capabilities, selection


def compile_plan(
    manifest: Manifest, recipes: Sequence[Recipe], artifacts: Artifacts, given: Mapping[str, str] | None = None
) -> Plan:
    """The cases that `manifest` claims, in the recipes' order. Raises ConformanceError for a wrong parameter."""
    parameters = given or {}
    check_parameters(recipes, parameters)
    declared = declared_capabilities(manifest)
    chosen = [recipe for recipe in recipes if selection(recipe, declared) == "selected"]
    return Plan.model_validate(
        {
            "$schema": f"{SCHEMAS}/api-profile-execution-plan.schema.json",
            "profile": PROFILE,
            "schema_version": SCHEMA_VERSION,
            "adapter": manifest.adapter,
            "artifacts": artifacts,
            "coverage_matrix": _coverage(recipes, declared),
            "cases": tuple(_case(recipe, parameters) for recipe in chosen),
        }
    )


def select_cases(cases: Iterable[Case], patterns: Sequence[str]) -> tuple[Case, ...]:
    """Those whose id one of the shell patterns fits; `!PATTERN` leaves out. Raises ConformanceError if none is left."""
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    chosen = tuple(case for case in cases if _fits(case.id, wanted) and not _fits(case.id, unwanted))
    if not chosen:
        raise ConformanceError(f"no selected case fits {' '.join(patterns)}" if patterns else "no case is selected")
    return chosen


def _fits(case_id: str, patterns: Iterable[str]) -> bool:
    """A pattern is for the whole id or for its last part: `cancellation` is openai-compatible.chat.cancellation."""
    last = case_id.rpartition(".")[2]
    return any(fnmatchcase(case_id, pattern) or fnmatchcase(last, pattern) for pattern in patterns)


def _case(recipe: Recipe, parameters: Mapping[str, str]) -> Case:
    return Case(
        id=recipe.id,
        operation=recipe.operation,
        status=recipe.status,
        required_capabilities=required_capabilities(recipe),
        request=filled(recipe, parameters),
        expect=recipe.expect,
    )


def _coverage(recipes: Iterable[Recipe], declared: frozenset[str]) -> tuple[Coverage, ...]:
    """One row per operation."""
    by_operation: dict[str, list[Recipe]] = {}
    for recipe in recipes:
        by_operation.setdefault(recipe.operation, []).append(recipe)
    return tuple(_row(name, by_operation[name], declared) for name in sorted(by_operation))


def _row(operation: str, recipes: Sequence[Recipe], declared: frozenset[str]) -> Coverage:
    selections = Counter(selection(recipe, declared) for recipe in recipes)
    statuses = Counter(recipe.status for recipe in recipes)
    return Coverage(
        feature=operation,
        required_capabilities=tuple(sorted({token for recipe in recipes for token in required_capabilities(recipe)})),
        summary=Summary(**{f"{name}_cases": selections[name] for name in get_args(Selection)}),
        statuses=Statuses(**{f"{name}_cases": statuses[name] for name in get_args(Status)}),
        case_ids=tuple(sorted(recipe.id for recipe in recipes)),
    )
