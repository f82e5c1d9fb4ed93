# SPDX-License-Identifier: MIT
"""Recipes as files: a suite's manifest names them. Ours lie beside this module, in a checkout also at its root."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from vllm_nnrp.conformance.models import Document, Manifest, Recipe, Request, Suite

OWN_RECIPES = Path(__file__).parent / "recipes"
SUITE_FILE = "manifest.json"
CLAIMS_FILE = "capabilities.json"
MODEL_ID = "MODEL_ID"
ANY_MODEL = "example-model"  # MODEL_ID of a recipe that works with any model; another one is the recipe's own

_PARAMETER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
AnyDocument = TypeVar("AnyDocument", bound=Document)


class ConformanceError(Exception):
    """What was given cannot be used; `str()` is one line for the user."""


def read_document(kind: type[AnyDocument], path: Path) -> AnyDocument:
    """Raises ConformanceError for a file that is not there or not of that kind, naming the first thing wrong."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as exc:
        raise ConformanceError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    except ValidationError as exc:
        finding = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in finding["loc"])
        raise ConformanceError(f"{path} is no {kind.__name__}: {where or 'JSON'}: {finding['msg']}") from exc


def load_recipes(folder: Path = OWN_RECIPES) -> tuple[Recipe, ...]:
    """Those the folder's manifest.json names, in its order. Raises ConformanceError."""
    suite = read_document(Suite, folder / SUITE_FILE)
    recipes = tuple(read_document(Recipe, folder / name) for name in suite.recipe_manifests)
    if twice := [name for name, count in Counter(recipe.id for recipe in recipes).items() if count > 1]:
        raise ConformanceError(f"{folder}: two recipes are called {twice[0]}")
    return recipes


def load_claims(path: Path = OWN_RECIPES / CLAIMS_FILE) -> Manifest:
    """Raises ConformanceError."""
    return read_document(Manifest, path)


def values_of(recipe: Recipe, given: Mapping[str, str]) -> dict[str, str]:
    """The recipe's parameters with those given in their place; a model of the recipe's own is kept."""
    own = recipe.parameters or {}
    values = own | {name: value for name, value in given.items() if name in own}
    if own.get(MODEL_ID, ANY_MODEL) != ANY_MODEL:
        values[MODEL_ID] = own[MODEL_ID]
    return values


def own_model(recipe: Recipe) -> str | None:
    """The model the recipe needs, if it is not the one under test."""
    model = (recipe.parameters or {}).get(MODEL_ID, ANY_MODEL)
    return None if model == ANY_MODEL else model


def filled(recipe: Recipe, given: Mapping[str, str]) -> Request:
    """The request with every `${NAME}` replaced. Raises ConformanceError for a name without a value."""
    values = values_of(recipe, given)
    body, nnrp = (_filled(part, values, recipe.id) for part in (recipe.request.body, recipe.request.nnrp))
    return Request(body=body, nnrp=nnrp)


def check_parameters(recipes: Iterable[Recipe], given: Mapping[str, str]) -> None:
    """Raises ConformanceError for a parameter that no recipe has."""
    known = {name for recipe in recipes for name in recipe.parameters or {}}
    if unknown := sorted(given.keys() - known):
        raise ConformanceError(f"no recipe has a parameter {unknown[0]}; there are {', '.join(sorted(known))}")


def _filled(value: Any, values: Mapping[str, str], recipe_id: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(entry, values, recipe_id) for key, entry in value.items()}
    if isinstance(value, list):
        return [_filled(entry, values, recipe_id) for entry in value]
    if not isinstance(value, str):
        return value
    if unknown := [name for name in _PARAMETER.findall(value) if name not in values]:
        raise ConformanceError(f"recipe {recipe_id} uses ${{{unknown[0]}}}, which it does not declare")
    return _PARAMETER.sub(lambda match: values[match[1]], value)
