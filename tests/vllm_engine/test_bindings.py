# SPDX-License-Identifier: MIT
"""Which vLLM is served: by its version, by what a binding uses of it, and what is said where it is not."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import pytest

from chatdelta import BackendFailure
from vllm_engine.bindings.families import FAMILIES, NEWEST, Probe, families_with, family_name
from vllm_engine.bindings.probing import missing_features, require_family, require_features
from vllm_engine.installation import Installation


class Feature:
    def takes(self, one: int, *, other: int = 0) -> None: ...


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("some_vllm")
    made.Feature = Feature  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_vllm", made)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("probe", "missing"),
    [
        pytest.param(Probe("some_vllm:Feature"), [], id="is there"),
        pytest.param(Probe("some_vllm:Feature.takes", ("one", "other")), [], id="with its parameters"),
        pytest.param(
            Probe("some_vllm:Feature.takes", ("one", "third")),
            ["some_vllm.Feature.takes(third=)"],
            id="without a parameter",
        ),
        pytest.param(Probe("some_vllm:Feature.gone"), ["some_vllm.Feature.gone"], id="without an attribute"),
        pytest.param(Probe("some_vllm:Gone.takes"), ["some_vllm.Gone.takes"], id="without a class"),
        pytest.param(Probe("some_vllm.gone:Feature"), ["some_vllm.gone.Feature"], id="without a module"),
    ],
)
def test_a_missing_feature_is_named(probe: Probe, missing: list[str]) -> None:
    assert missing_features(replace(NEWEST, probes=(probe,))) == missing


@pytest.mark.usefixtures("module")
def test_the_refusal_says_what_was_found_what_is_missing_and_what_to_install() -> None:
    family = replace(FAMILIES["0.22"], probes=(Probe("some_vllm:Gone"), Probe("some_vllm:Feature")))
    with pytest.raises(BackendFailure) as caught:
        require_features(Installation("vllm", "0.22.7", is_cpu=False), family)
    assert str(caught.value) == (
        "vLLM 0.22.7 is not supported; missing: some_vllm.Gone; tested: 0.18.1, 0.22.1, 0.26.0; "
        "to install one: pip install 'vllm==0.22.1' 'transformers==4.57.6' 'torch==2.11.0'"
    )


@pytest.mark.parametrize(
    ("version", "family"), [("0.18.0", "0.18"), ("0.18.1", "0.18"), ("0.22.9", "0.22"), ("0.26.0", "0.26")]
)
def test_every_patch_release_of_a_line_is_of_its_family(version: str, family: str) -> None:
    assert family_name(version) == family
    assert require_family(Installation("vllm", version, is_cpu=False)).name == family


@pytest.mark.parametrize(
    ("kind", "parser", "families"),
    [
        ("tool parser", "gemma4", ["0.22", "0.26"]),
        ("tool parser", "inkling", ["0.26"]),
        ("tool parser", "minimax", ["0.18", "0.22"]),
        ("reasoning parser", "glm47", ["0.26"]),
        ("tool parser", "glm47", ["0.18", "0.22", "0.26"]),
    ],
)
def test_the_families_that_have_a_parser(kind: str, parser: str, families: list[str]) -> None:
    assert families_with(kind, parser) == families


def test_gaps_have_one_name_each() -> None:
    for family in FAMILIES.values():
        names = [gap.name for gap in family.gaps]
        assert len(names) == len(set(names))
    assert not NEWEST.gaps


@pytest.mark.engine
def test_the_installed_vllm_has_all_that_its_binding_uses() -> None:
    from vllm_engine.installation import find_installation

    assert missing_features(require_family(find_installation())) == []
