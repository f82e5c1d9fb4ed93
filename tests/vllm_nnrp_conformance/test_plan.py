# SPDX-License-Identifier: MIT
"""Which recipes a manifest selects, and the plan that comes of it. The rules are the published runner's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vllm_nnrp_conformance.documents import ARTIFACTS, MANIFEST, OPERATION, RECIPE, Json
from vllm_nnrp.conformance.models import Artifacts, Manifest, Plan, Recipe
from vllm_nnrp.conformance.plan import compile_plan, select_cases
from vllm_nnrp.conformance.recipes import ConformanceError
from vllm_nnrp.conformance.selection import declared_capabilities, required_capabilities, selection

WHERE = Artifacts.model_validate(ARTIFACTS)
CHAT = "chat.completions.create"


def manifest(**changed: Any) -> Manifest:
    return Manifest.model_validate_json(json.dumps(MANIFEST | changed))


def recipe(**changed: Any) -> Recipe:
    return Recipe.model_validate_json(json.dumps(RECIPE | changed))


DECLARED: list[tuple[str, Json, set[str]]] = [
    ("level and operation", {}, {"api.level1", f"api.{CHAT}", "api.streaming", "api.non_streaming", "api.tool_calls"}),
    (
        "what is false is not claimed",
        {"operations": [{"name": "o", "streaming": False, "non_streaming": False, "tool_calls": False}]},
        {"api.level1", "api.o"},
    ),
    (
        "cancellation",
        {"operations": [OPERATION | {"tool_calls": False, "cancellation": True}], "compatibility_levels": [1, 3]},
        {"api.level1", "api.level3", f"api.{CHAT}", "api.streaming", "api.non_streaming", "api.cancellation"},
    ),
]


@pytest.mark.parametrize(("changed", "tokens"), [row[1:] for row in DECLARED], ids=[row[0] for row in DECLARED])
def test_what_a_manifest_declares(changed: Json, tokens: set[str]) -> None:
    assert declared_capabilities(manifest(**changed)) == tokens


def test_extensions_are_declared_by_name() -> None:
    extensions = [{"name": "a", "critical": False}, {"name": "b", "critical": True}]
    declared = declared_capabilities(manifest(extensions=extensions))
    assert {token for token in declared if "extension" in token} == {
        "api.extension.a",
        "api.extension.b",
        "api.extension.b.critical",
    }


NEEDED: list[tuple[str, Json, list[str]]] = [
    ("named ones, sorted", {"required_capabilities": ["b", "a"]}, ["a", "b"]),
    ("a request", {}, [f"api.{CHAT}", "api.non_streaming"]),
    ("a stream", {"request": {"body": {"stream": True}}}, [f"api.{CHAT}", "api.streaming"]),
    (
        "a stream with tools that is cancelled",
        {"request": {"body": {"stream": True, "tools": [{}]}, "nnrp": {"cancel_after_events": 1}}},
        ["api.cancellation", f"api.{CHAT}", "api.streaming", "api.tool_calls"],
    ),
    ("no tools in the end", {"request": {"body": {"tools": []}}}, [f"api.{CHAT}", "api.non_streaming"]),
]


@pytest.mark.parametrize(("changed", "tokens"), [row[1:] for row in NEEDED], ids=[row[0] for row in NEEDED])
def test_what_a_recipe_needs(changed: Json, tokens: list[str]) -> None:
    assert list(required_capabilities(recipe(**changed))) == tokens


SELECTED: list[tuple[str, Json, str]] = [
    ("claimed", {"required_capabilities": ["api.level1"]}, "selected"),
    ("claimed and optional", {"required_capabilities": ["api.level1"], "status": "optional"}, "selected"),
    ("not claimed", {"required_capabilities": ["api.level1", "api.level2"]}, "not_claimed"),
    ("experimental", {"status": "experimental"}, "informational"),
    ("deprecated", {"status": "deprecated"}, "informational"),
]


@pytest.mark.parametrize(("changed", "expected"), [row[1:] for row in SELECTED], ids=[row[0] for row in SELECTED])
def test_selection(changed: Json, expected: str) -> None:
    assert selection(recipe(**changed), declared_capabilities(manifest())) == expected


def three() -> Plan:
    recipes = [
        recipe(id="p.chat.first", parameters={"P": "a"}, request={"body": {"stream": True, "x": "${P}"}}),
        recipe(id="p.chat.second", status="optional", required_capabilities=["api.level2"]),
        recipe(id="p.other", operation="other", status="optional", required_capabilities=["api.level1"]),
    ]
    return compile_plan(manifest(), recipes, WHERE, {"P": "b"})


def test_a_plan() -> None:
    """Written by hand from the published schema and the published runner's rules."""
    none = {"experimental_cases": 0, "deprecated_cases": 0}
    expect = {"events": [{"type": "response.completed"}], "terminal": "success"}
    assert three().to_json() == {
        "$schema": "https://github.com/NagareWorks/nnrp-conformance/schemas/api-profile-execution-plan.schema.json",
        "profile": "openai-compatible",
        "schema_version": "openai-compatible/1",
        "adapter": "a",
        "artifacts": {"results_path": "r", "evidence_dir": "e"},
        "coverage_matrix": [
            {
                "feature": CHAT,
                "required_capabilities": [f"api.{CHAT}", "api.level2", "api.streaming"],
                "summary": {"selected_cases": 1, "not_claimed_cases": 1, "informational_cases": 0},
                "statuses": {"mandatory_cases": 1, "optional_cases": 1, **none},
                "case_ids": ["p.chat.first", "p.chat.second"],
            },
            {
                "feature": "other",
                "required_capabilities": ["api.level1"],
                "summary": {"selected_cases": 1, "not_claimed_cases": 0, "informational_cases": 0},
                "statuses": {"mandatory_cases": 0, "optional_cases": 1, **none},
                "case_ids": ["p.other"],
            },
        ],
        "cases": [
            {
                "id": "p.chat.first",
                "operation": CHAT,
                "status": "mandatory",
                "required_capabilities": [f"api.{CHAT}", "api.streaming"],
                "request": {"body": {"stream": True, "x": "b"}},
                "expect": expect,
            },
            {
                "id": "p.other",
                "operation": "other",
                "status": "optional",
                "required_capabilities": ["api.level1"],
                "request": {"body": {}},
                "expect": expect,
            },
        ],
    }


PATTERNS: list[tuple[list[str], list[str]]] = [
    ([], ["p.chat.first", "p.other"]),
    (["p.chat.*"], ["p.chat.first"]),
    (["first"], ["p.chat.first"]),
    (["f*", "other"], ["p.chat.first", "p.other"]),
    (["!other"], ["p.chat.first"]),
    (["p.*", "!first"], ["p.other"]),
]


@pytest.mark.parametrize(("patterns", "ids"), PATTERNS)
def test_selecting_cases(patterns: list[str], ids: list[str]) -> None:
    assert [case.id for case in select_cases(three().cases, patterns)] == ids


def test_selecting_nothing_is_an_error() -> None:
    with pytest.raises(ConformanceError, match="no selected case fits second"):
        select_cases(three().cases, ["second"])
