# SPDX-License-Identifier: MIT
"""Our recipes: valid, complete for Level 1, and what they claim is what the door says of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chatdelta.testing import SCRIPTED_INFO
from nnrp_openai import capability_document
from tests.support.reports import ROOT
from tests.vllm_nnrp_conformance.documents import RECIPE, SUITE
from tests.vllm_nnrp_conformance.serving import CLAIMS, RECIPES
from vllm_nnrp.conformance.event_rules import EXTENSION_EVENTS, SHAPES
from vllm_nnrp.conformance.models import Recipe
from vllm_nnrp.conformance.recipes import (
    OWN_RECIPES,
    ConformanceError,
    check_parameters,
    filled,
    load_recipes,
    own_model,
    read_document,
    values_of,
)
from vllm_nnrp.conformance.runner import TOKEN_EXTENSION
from vllm_nnrp.conformance.selection import declared_capabilities, required_capabilities

BY_ID = {recipe.id: recipe for recipe in RECIPES}
# The adapter design's list of what Level 1 must cover, in its order; optional is what an adapter has to advertise.
REQUIRED = {
    "openai-compatible.chat.streaming-text": "mandatory",
    "openai-compatible.chat.non-streaming": "mandatory",
    "openai-compatible.chat.invalid-body": "mandatory",
    "openai-compatible.chat.unsupported-operation": "mandatory",
    "openai-compatible.chat.usage": "mandatory",
    "openai-compatible.chat.text-delta-order": "mandatory",
    "openai-compatible.chat.tool-call-delta": "optional",
    "openai-compatible.chat.cancellation": "optional",
    "openai-compatible.chat.backend-error": "mandatory",
    "openai-compatible.capability-document": "mandatory",
}


def test_the_ten_cases_of_level_1() -> None:
    assert {recipe.id: recipe.status for recipe in RECIPES[: len(REQUIRED)]} == REQUIRED
    assert {recipe.status for recipe in RECIPES[len(REQUIRED) :]} == {"optional"}


def test_the_recipes_are_those_at_the_root_of_the_repository() -> None:
    assert (ROOT / "recipes").resolve() == OWN_RECIPES.resolve()
    listed = {"manifest.json", "capabilities.json"}
    listed |= set(json.loads((OWN_RECIPES / "manifest.json").read_text(encoding="utf-8"))["recipe_manifests"])
    assert {file.name for file in OWN_RECIPES.iterdir()} == listed


def test_every_recipe_is_selected_by_what_we_claim() -> None:
    declared = declared_capabilities(CLAIMS)
    assert [recipe.id for recipe in RECIPES if not declared.issuperset(required_capabilities(recipe))] == []


def test_what_is_claimed_is_what_the_door_says() -> None:
    document = capability_document(SCRIPTED_INFO)
    assert [operation.to_json() for operation in CLAIMS.operations] == document["operations"]
    named = {extension["name"] for extension in document["extensions"]}
    assert {extension.name for extension in CLAIMS.extensions} == named | {TOKEN_EXTENSION}


def test_every_extension_of_requests_and_events_has_a_case() -> None:
    """Control frames are the wire cases' matter; those that end an operation have theirs here, too."""
    needed = {token for recipe in RECIPES for token in required_capabilities(recipe)}
    frames = {
        name for name in (e.name for e in CLAIMS.extensions) if name.startswith(("control.", "object.", "cache."))
    }
    ours = {f"api.extension.{extension.name}" for extension in CLAIMS.extensions if extension.name not in frames}
    assert ours <= needed
    assert {name.removeprefix("api.extension.") for name in needed} & frames == {
        "control.budget_update",
        "control.cancel_abort",
        "control.deadline_expire",
        "control.supersede",
    }


def test_every_event_that_is_expected_exists() -> None:
    known = {*SHAPES, *EXTENSION_EVENTS.values()}
    assert {event.type for recipe in RECIPES for event in recipe.expect.events} <= known


def test_no_parameter_is_declared_in_vain() -> None:
    for recipe in RECIPES:
        used = set(re.findall(r"\$\{(\w+)\}", recipe.request.model_dump_json()))
        assert used == set(recipe.parameters or {}), recipe.id


# Parameters


def recipe_with(parameters: Mapping[str, str], body: dict[str, Any]) -> Recipe:
    return Recipe.model_validate_json(json.dumps(RECIPE | {"parameters": dict(parameters), "request": {"body": body}}))


OWN = {"MODEL_ID": "backend-error"}
ANY = {"MODEL_ID": "example-model"}
FILLED: list[tuple[str, Mapping[str, str], Mapping[str, str], Any, Any]] = [
    ("its own value", {"P": "a"}, {}, "${P}", "a"),
    ("a given one", {"P": "a"}, {"P": "b"}, "${P}", "b"),
    ("inside a text, twice", {"P": "a"}, {}, "x${P}y${P}", "xaya"),
    ("inside an array", {"P": "a"}, {}, [{"q": "${P}"}], [{"q": "a"}]),
    ("a value is no template", {"P": "${Q}"}, {}, "${P}", "${Q}"),
    ("another recipe's", {"P": "a"}, {"Q": "b"}, "${P}", "a"),
    ("any model", ANY, {"MODEL_ID": "m"}, "${MODEL_ID}", "m"),
    ("a model of its own is kept", OWN, {"MODEL_ID": "m"}, "${MODEL_ID}", "backend-error"),
    ("numbers stay", {}, {}, [1, 2.5, True, None], [1, 2.5, True, None]),
]


@pytest.mark.parametrize(
    ("parameters", "given", "value", "expected"), [row[1:] for row in FILLED], ids=[r[0] for r in FILLED]
)
def test_parameters(parameters: Mapping[str, str], given: Mapping[str, str], value: Any, expected: Any) -> None:
    assert filled(recipe_with(parameters, {"value": value}), given).body == {"value": expected}


def test_a_parameter_without_a_value_is_named() -> None:
    with pytest.raises(ConformanceError, match=r"recipe a.case uses \$\{Q\}, which it does not declare"):
        filled(recipe_with({"P": "a"}, {"value": "${Q}"}), {"Q": "b"})


def test_a_parameter_that_nobody_has_is_named() -> None:
    with pytest.raises(ConformanceError, match="no recipe has a parameter X; there are FAULT_TASK, GREETING, "):
        check_parameters(RECIPES, {"X": "1", "GREETING": "p"})


def test_models() -> None:
    assert own_model(BY_ID["openai-compatible.chat.backend-error"]) == "backend-error"
    assert own_model(BY_ID["openai-compatible.chat.usage"]) is None
    assert own_model(BY_ID["openai-compatible.chat.missing-model"]) is None
    assert values_of(BY_ID["openai-compatible.chat.missing-model"], {"MODEL_ID": "m"}) == {}


# Files


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConformanceError, match=r"manifest\.json cannot be read: No such file or directory"):
        load_recipes(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no Recipe: JSON: Invalid JSON"),
        (json.dumps(RECIPE | {"status": 1}), "is no Recipe: status: Input should be"),
        (
            json.dumps({**RECIPE, "expect": {"events": [{}], "terminal": "success"}}),
            "expect.events.0.type: Field required",
        ),
    ],
)
def test_what_is_no_recipe_is_said_in_words(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConformanceError, match=re.escape(words)):
        read_document(Recipe, file)


def test_two_recipes_of_one_id(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(SUITE | {"recipe_manifests": ["a.json", "b.json"]}))
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(RECIPE))
    with pytest.raises(ConformanceError, match=r"two recipes are called a\.case"):
        load_recipes(tmp_path)
