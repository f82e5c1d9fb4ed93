# SPDX-License-Identifier: MIT
"""A spec as vLLM's own arguments and configuration: layers, names, and what loads need beside the model. No engine."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chatdelta import InvalidRequest
from localai_proto import backend_pb2 as pb
from tests.support.models import memorised_model_path
from vllm_engine import Adapter, EngineSpec
from vllm_engine.args import build_engine_args
from vllm_nnrp.load_options import decode_model_options


def build(spec: EngineSpec) -> Any:
    """vLLM's arguments for `spec`, with a model that is there: vLLM looks for it where the hub is switched off."""
    return build_engine_args(replace(spec, model=str(memorised_model_path())))


# torch itself, when vLLM's configuration first imports a part of it
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")

LAYERS: list[tuple[EngineSpec, dict[str, Any]]] = [
    (EngineSpec("", defaults={"seed": 1}), {"seed": 1}),
    (EngineSpec("", defaults={"seed": 1}, engine_args={"seed": 2}), {"seed": 2}),
    (EngineSpec("", engine_args={"seed": 2}, flags=(("seed", "3"),)), {"seed": 3}),
    (EngineSpec("", flags=(("seed", "3"),), engine_args_json={"seed": 4}), {"seed": 4}),
    (
        EngineSpec("", defaults={"seed": 1}, engine_args={"dtype": "float32"}, flags=(("max-num-seqs", "5"),)),
        {"seed": 1, "dtype": "float32", "max_num_seqs": 5},
    ),
    (EngineSpec("", reasoning_parser="qwen3"), {"reasoning_parser": "qwen3"}),
]


@pytest.mark.parametrize(("spec", "expected"), LAYERS)
def test_each_layer_lies_over_the_one_before(spec: EngineSpec, expected: dict[str, Any]) -> None:
    built = build(spec)
    assert {name: getattr(built, name) for name in expected} == expected


FLAGS: list[tuple[tuple[str, str | None], str, Any]] = [
    (("enable-prefix-caching", None), "enable_prefix_caching", True),
    (("enable-prefix-caching", "true"), "enable_prefix_caching", True),
    (("enable_prefix_caching", "false"), "enable_prefix_caching", False),
    (("no-enable-prefix-caching", None), "enable_prefix_caching", False),
    (("gpu-memory-utilization", "0.5"), "gpu_memory_utilization", 0.5),
    (("max-model-len", "2k"), "max_model_len", 2000),  # vLLM's own way to write numbers
    (("hf-overrides", '{"a": {"b": 1}}'), "hf_overrides", {"a": {"b": 1}}),
    (("quantization", "fp8"), "quantization", "fp8"),
]


@pytest.mark.parametrize(("flag", "name", "value"), FLAGS)
def test_a_flag_is_read_as_on_vllms_command_line(flag: tuple[str, str | None], name: str, value: Any) -> None:
    assert getattr(build(EngineSpec("", flags=(flag,))), name) == value


def test_an_unknown_flag_warns_with_the_closest_and_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    spec = EngineSpec("", flags=(("enable-prefix-cachin", None), ("seed", "7")))
    assert build(spec).seed == 7
    (message,) = caplog.messages
    assert message.startswith("unknown flag 'enable-prefix-cachin'; did you mean enable_prefix_caching, ")
    assert message.endswith("?; ignored")


REFUSED: dict[str, tuple[EngineSpec, str]] = {
    "an unknown engine argument": (
        EngineSpec("", engine_args_json={"max_model_length": 1}),
        "unknown engine argument 'max_model_length'; did you mean max_model_len",
    ),
    "swap_space, which vLLM had once": (EngineSpec("", engine_args_json={"swap_space": 4}), "unknown engine argument"),
    "a text for a number": (
        EngineSpec("", engine_args_json={"max_num_seqs": "many"}),
        "engine argument max_num_seqs must be a whole number, not 'many'",
    ),
    "a number for a switch": (
        EngineSpec("", engine_args_json={"enforce_eager": 1}),
        "engine argument enforce_eager must be true or false, not 1",
    ),
    "a list for a number": (
        EngineSpec("", engine_args_json={"gpu_memory_utilization": [0.5]}),
        "engine argument gpu_memory_utilization must be a number, not [0.5]",
    ),
    "a flag's wrong value": (EngineSpec("", flags=(("max-num-seqs", "many"),)), "options: "),
    "a flag without its value": (EngineSpec("", flags=(("max-num-seqs", None),)), "options: "),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_vllm_does_not_take_is_refused_by_name(what: str) -> None:
    spec, message = REFUSED[what]
    with pytest.raises(InvalidRequest) as caught:
        build(spec)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


TAKEN: list[dict[str, Any]] = [
    {"gpu_memory_utilization": 1},
    {"max_num_seqs": None},
    {"served_model_name": ["a", "b"]},
    {"hf_token": False},
    {"kv_cache_dtype_skip_layers": ["0"]},
    {"compilation_config": {"mode": 0}},
    {"limit_mm_per_prompt": {"image": 2}},
]


@pytest.mark.parametrize("engine_args", TAKEN, ids=lambda engine_args: next(iter(engine_args)))
def test_what_vllm_takes_is_let_through(engine_args: dict[str, Any]) -> None:
    build(EngineSpec("", engine_args_json=engine_args))


# LoRA


def adapter(folder: Path, rank: int) -> Adapter:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
    return Adapter(folder.name, str(folder))


@pytest.mark.parametrize(("ranks", "room"), [([1], 1), ([4], 8), ([64], 64), ([8, 100], 128)])
def test_the_adapters_have_room(tmp_path: Path, ranks: list[int], room: int) -> None:
    adapters = tuple(adapter(tmp_path / str(number), rank) for number, rank in enumerate(ranks))
    built = build(EngineSpec("", adapters=adapters))
    assert (built.enable_lora, built.max_loras, built.max_lora_rank) == (True, len(ranks), room)


def test_the_room_for_adapters_can_be_said(tmp_path: Path) -> None:
    spec = EngineSpec("", adapters=(adapter(tmp_path / "a", 4),), engine_args_json={"max_lora_rank": 32})
    assert build(spec).max_lora_rank == 32


# The whole way from LoadModel to vLLM's configuration


def config_of(model: Path, **fields: Any) -> Any:
    """vLLM's own configuration for a load of `model`."""
    plan = decode_model_options(pb.ModelOptions(Model="memorised", ModelFile=str(model), **fields))
    return build_engine_args(replace(plan.spec, tool_parser=None, reasoning_parser=None)).create_engine_config()


def test_another_tokenizer(tmp_path: Path) -> None:
    model = memorised_model_path()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model / file, tmp_path)
    config = config_of(model, Tokenizer=tmp_path.name, ModelPath=str(tmp_path.parent))
    assert config.model_config.tokenizer == str(tmp_path)


def test_a_draft_model_speculates() -> None:
    model = memorised_model_path()
    config = config_of(model, DraftModel=str(model)).speculative_config
    assert (config.method, config.model, config.num_speculative_tokens) == ("draft_model", str(model), 3)


def test_engine_args_win_over_the_draft_model() -> None:
    model = memorised_model_path()
    ngram = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}}
    config = config_of(model, DraftModel=str(model), EngineArgs=json.dumps(ngram)).speculative_config
    assert (config.method, config.num_speculative_tokens) == ("ngram", 2)


@pytest.mark.parametrize(
    ("fields", "runner", "convert"),
    [
        ({}, "generate", "none"),
        ({"Embeddings": True}, "pooling", "embed"),
        ({"Reranking": True}, "pooling", "embed"),  # by two embeddings: the model has no head for pairs
        ({"Reranking": True, "EngineArgs": '{"convert": "classify"}'}, "pooling", "classify"),
        ({"EnableScore": True}, "generate", "none"),
    ],
)
def test_the_runner(fields: dict[str, Any], runner: str, convert: str) -> None:
    config = config_of(memorised_model_path(), **fields).model_config
    assert (config.runner_type, config.convert_type) == (runner, convert)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_code_of_a_model_runs_only_if_it_is_trusted(tmp_path: Path, *, is_trusted: bool) -> None:
    model = tmp_path / "model"
    shutil.copytree(memorised_model_path(), model)
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "configuration_own.OwnConfig"}}
    (model / "config.json").write_text(json.dumps(config))
    (model / "configuration_own.py").write_text(
        "from transformers import Qwen3Config\nclass OwnConfig(Qwen3Config):\n    model_type = 'own'\n"
    )
    if is_trusted:
        assert config_of(model, TrustRemoteCode=True).model_config.hf_config.model_type == "own"
    else:
        with pytest.raises(Exception, match="trust_remote_code=True"):
            config_of(model)


def test_limits_per_prompt() -> None:
    from vllm_nnrp.models.vision import build_vision_model

    config = config_of(build_vision_model(), LimitImagePerPrompt=3).model_config.multimodal_config
    assert config.get_limit_per_prompt("image") == 3
