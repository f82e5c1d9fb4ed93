# SPDX-License-Identifier: MIT
"""Hooks fill what a load leaves unset, in their order; and which hooks there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from localai_proto import backend_pb2 as pb
from vllm_nnrp.defaults import BACKEND, EVERY, Choice, Hook, Load, defaults_for
from vllm_nnrp.load_options import decode_model_options, plan_from_command_line


def hook(source: str, **values: Any) -> Hook:
    return lambda _load: {name: Choice(value, source) for name, value in values.items()}


HOOKS = (
    (BACKEND, hook("own, first", a=1, b=1)),
    ("", hook("no name", a=2, d=2)),
    (EVERY, hook("every, first", c=3)),
    ("other", hook("other", e=4)),
    (BACKEND, hook("own, second", b=5, d=5)),
    (EVERY, hook("every, second", c=6, b=6)),
)


@pytest.mark.parametrize(
    ("backend", "said", "sources"),
    [
        (
            BACKEND,
            set(),
            {"c": "every, first", "b": "every, second", "a": "own, first", "d": "own, second"},
        ),
        ("", set(), {"c": "every, first", "b": "every, second", "a": "no name", "d": "no name"}),
        ("unheard of", set(), {"c": "every, first", "b": "every, second"}),
        (EVERY, set(), {"c": "every, first", "b": "every, second"}),
        (BACKEND, {"b", "c"}, {"a": "own, first", "d": "own, second"}),
    ],
)
def test_the_order_of_hooks(backend: str, said: set[str], sources: Mapping[str, str]) -> None:
    found = defaults_for(Load((), said=frozenset(said)), backend, HOOKS)
    assert {name: choice.source for name, choice in found.items()} == sources
    assert list(found) == list(sources), "in the order of the hooks that named them"


def test_a_hook_sees_the_load() -> None:
    seen: list[Load] = []

    def look(load: Load) -> Mapping[str, Choice]:
        seen.append(load)
        return {}

    load = Load(("org/m",), said=frozenset({"dtype"}), generates=False, on_cpu=True)
    assert defaults_for(load, "", ((EVERY, look),)) == {}
    assert seen == [load]


# The hooks there are


@pytest.mark.parametrize("backend", ["", BACKEND])
def test_on_a_cpu_nothing_is_compiled_unless_it_is_said(backend: str) -> None:
    assert defaults_for(Load((), on_cpu=True), backend)["enforce_eager"].value is True
    assert not defaults_for(Load((), on_cpu=False), backend)
    assert not defaults_for(Load((), on_cpu=True, said=frozenset({"enforce_eager"})), backend)


@pytest.mark.parametrize(
    "fields",
    [
        {"EnforceEager": True},
        {"Options": ["--enforce-eager:false"]},
        {"Options": ["--no-enforce-eager"]},
        {"EngineArgs": '{"enforce_eager": false}'},
    ],
)
def test_a_load_that_speaks_of_eager_mode_gets_no_default(monkeypatch: pytest.MonkeyPatch, fields: Any) -> None:
    monkeypatch.setattr("vllm_nnrp.load_options.serves_on_cpu", lambda: True)
    assert "enforce_eager" in decode_model_options(pb.ModelOptions(Model="m")).spec.defaults
    assert "enforce_eager" not in decode_model_options(pb.ModelOptions(Model="m", **fields)).spec.defaults


def test_parsers_are_defaults_of_the_family() -> None:
    found = defaults_for(Load(("Qwen/Qwen3-0.6B",)), BACKEND)
    assert str(found["tool_parser"]) == "hermes (default of the family qwen3)"
    assert str(found["reasoning_parser"]) == "qwen3 (default of the family qwen3)"


@pytest.mark.parametrize(
    "fields",
    [
        {"Embeddings": True},
        {"Reranking": True},
        {"Options": ["--runner:pooling"]},
        {"EngineArgs": '{"runner": "pooling"}'},
    ],
)
def test_a_model_that_makes_no_text_has_no_parsers(fields: Any) -> None:
    plan = decode_model_options(pb.ModelOptions(Model="Qwen/Qwen3-Embedding-0.6B", **fields))
    assert (plan.spec.tool_parser, plan.spec.reasoning_parser) == (None, None)
    assert not {"tool_parser", "reasoning_parser"} & plan.choices.keys()


def test_prefix_caching_and_chunked_prefill_are_left_to_vllm() -> None:
    names = {"enable_prefix_caching", "enable_chunked_prefill"}
    assert not names & plan_from_command_line("Qwen/Qwen3-0.6B", []).spec.defaults.keys()
