# SPDX-License-Identifier: MIT
"""What a load refuses from names and files alone, and what a spec says of itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from chatdelta import InvalidRequest
from vllm_engine import Adapter, EngineSpec, refuse_unservable

CONFIG = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
TOKENIZER = {"tokenizer.json": "{}"}
FAST_S = 1.0


def write(folder: Path, files: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


NAMES = [
    ("", "no model was named"),
    ("/no/such/model", "model not found: /no/such/model"),
    ("./no-such-model", "model not found: ./no-such-model"),
    ("~/no-such-model", "model not found: ~/no-such-model"),
    ("org/model.GGUF", "model.GGUF is a GGUF file; this backend serves Hugging Face model folders"),
    ("ggml-model.ggml", "ggml-model.ggml is a GGUF file; this backend serves Hugging Face model folders"),
]


@pytest.mark.parametrize(("model", "message"), NAMES)
def test_a_name_that_cannot_be_served_is_refused(model: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_unservable(EngineSpec(model))
    assert str(caught.value) == message


# the folder's files → what is said of the folder "m" before "; this backend serves …"
FOLDERS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "m is empty"),
    "only a readme": ({"README.md": ""}, "m has no config.json"),
    "GGUF files": ({"m.Q4_K_M.gguf": ""}, "m holds GGUF files"),
    "GGUF files beside a config": ({"config.json": CONFIG, "m.gguf": ""}, "m has its weights in GGUF files only"),
    "an ONNX voice": ({"voice.onnx": "", "voice.onnx.json": "{}"}, "m holds ONNX files"),
    "an image pipeline": ({"model_index.json": "{}"}, "m is a diffusers pipeline"),
    "a LoRA adapter": (
        {"adapter_config.json": "{}", "adapter_model.safetensors": ""},
        "m is a LoRA adapter: load its base model, and this as its lora_adapter",
    ),
    "another program's config": ({"config.json": {"sample_rate": 22050}}, "config.json of m names no kind of model"),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_a_folder_of_something_else_is_refused_by_what_it_is(tmp_path: Path, what: str) -> None:
    files, message = FOLDERS[what]
    started_s = time.monotonic()
    with pytest.raises(InvalidRequest) as caught:
        refuse_unservable(EngineSpec(str(write(tmp_path / "m", files))))
    assert time.monotonic() - started_s < FAST_S
    assert str(caught.value) == f"{message}; this backend serves Hugging Face model folders"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"model_type": "qwen3", "archi', "m: config.json is not valid JSON"),
        ("[]", "m: config.json is no JSON object"),
        ("[" * 200_000, "m: config.json is not valid JSON"),
    ],
)
def test_a_broken_config_is_refused(tmp_path: Path, config: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_unservable(EngineSpec(str(write(tmp_path / "m", {"config.json": config}))))
    assert str(caught.value) == message


def test_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"weights.bin": ""})
    with pytest.raises(InvalidRequest, match=r"^weights\.bin is a file; this backend"):
        refuse_unservable(EngineSpec(str(tmp_path / "weights.bin")))


SERVABLE: list[dict[str, Any]] = [
    {"config.json": CONFIG, "model.safetensors": "", **TOKENIZER},
    {"config.json": CONFIG, "pytorch_model.bin": "", "m.gguf": "", "vocab.txt": ""},
    {"config.json": {"architectures": ["X"]}, "spiece.model": ""},  # weights may come from elsewhere, by load_format
    {"params.json": "{}", "consolidated.safetensors": "", "tekken.json": "{}"},  # Mistral's own form
]


def test_a_model_without_a_tokenizer_needs_one_that_is_named(tmp_path: Path) -> None:
    model = str(write(tmp_path / "m", {"config.json": CONFIG, "model.safetensors": ""}))
    with pytest.raises(InvalidRequest) as caught:
        refuse_unservable(EngineSpec(model))
    assert str(caught.value) == "m has no tokenizer: name one with the field Tokenizer"
    refuse_unservable(EngineSpec(model, engine_args={"tokenizer": "org/t"}))
    refuse_unservable(EngineSpec(model, flags=(("skip-tokenizer-init", None),)))


@pytest.mark.parametrize(
    ("engine_args", "message"),
    [
        ({"tokenizer": "/no/tokenizer"}, "tokenizer not found: /no/tokenizer"),
        ({"speculative_config": {"model": "/no/draft"}}, "draft model not found: /no/draft"),
    ],
)
def test_another_path_to_nothing_is_refused(engine_args: dict[str, Any], message: str) -> None:
    for spec in (EngineSpec("org/m", engine_args=engine_args), EngineSpec("org/m", engine_args_json=engine_args)):
        with pytest.raises(InvalidRequest) as caught:
            refuse_unservable(spec)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    "engine_args", [{"tokenizer": "org/t"}, {"speculative_config": {"method": "ngram"}}, {"speculative_config": "x"}]
)
def test_other_references_are_left_to_the_engine(engine_args: dict[str, Any]) -> None:
    refuse_unservable(EngineSpec("org/m", engine_args_json=engine_args))


@pytest.mark.parametrize("files", SERVABLE, ids=lambda files: " ".join(files))
def test_a_model_folder_is_not_refused(tmp_path: Path, files: dict[str, Any]) -> None:
    refuse_unservable(EngineSpec(str(write(tmp_path, files))))


def test_a_hub_id_is_not_refused() -> None:
    refuse_unservable(EngineSpec("org/model"))


# the adapter's files → the message behind "LoRA adapter a "
ADAPTERS: dict[str, tuple[dict[str, Any], str]] = {
    "no config": ({}, "LoRA adapter a: adapter_config.json cannot be read (No such file or directory)"),
    "a truncated config": (
        {"adapter_config.json": '{"r": 8,'},
        "LoRA adapter a: adapter_config.json is not valid JSON",
    ),
    "no rank": ({"adapter_config.json": {}}, "LoRA adapter a has no rank r in adapter_config.json"),
    "a rank of zero": ({"adapter_config.json": {"r": 0}}, "LoRA adapter a has no rank r in adapter_config.json"),
    "a rank that is true": (
        {"adapter_config.json": {"r": True}},
        "LoRA adapter a has no rank r in adapter_config.json",
    ),
}


@pytest.mark.parametrize("what", ADAPTERS)
def test_an_adapter_that_is_seen_to_be_broken_is_refused(tmp_path: Path, what: str) -> None:
    files, message = ADAPTERS[what]
    adapter = Adapter("a", str(write(tmp_path / "a", files)))
    with pytest.raises(InvalidRequest) as caught:
        refuse_unservable(EngineSpec("org/model", adapters=(adapter,)))
    assert str(caught.value) == message


def test_a_missing_adapter_is_refused_without_its_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_unservable(EngineSpec("org/model", adapters=(Adapter("a", str(tmp_path / "a")),)))
    assert (str(caught.value), caught.value.code) == ("LoRA adapter a was not found", "adapter_not_found")


def test_a_single_file_is_no_adapter(tmp_path: Path) -> None:
    write(tmp_path, {"a.safetensors": ""})
    with pytest.raises(InvalidRequest, match=r"a\.safetensors is a file, not a folder with adapter_config\.json"):
        refuse_unservable(EngineSpec("m", adapters=(Adapter("a.safetensors", str(tmp_path / "a.safetensors")),)))


# What a spec says of itself

PIRATE, POET = Adapter("pirate", "/a/pirate"), Adapter("poet", "/a/poet")


def test_equal_specs_have_equal_keys() -> None:
    one = EngineSpec("m", engine_args={"a": 1, "b": 2}, flags=(("x", None),), adapters=(PIRATE,), defaults={"c": 3})
    same = EngineSpec("m", engine_args={"b": 2, "a": 1}, flags=(("x", None),), adapters=(PIRATE,), defaults={"c": 3})
    assert one.key() == same.key()
    others = (
        EngineSpec("m", engine_args={"a": 1, "b": 3}, flags=(("x", None),), adapters=(PIRATE,), defaults={"c": 3}),
        EngineSpec("m", engine_args={"a": 1, "b": 2}, flags=(("x", None),), adapters=(POET,), defaults={"c": 3}),
        EngineSpec("m", engine_args={"a": 1, "b": 2}, flags=(("x", None),), adapters=(PIRATE,)),
    )
    assert all(one.key() != other.key() for other in others)


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (EngineSpec("dir"), ("dir",)),
        (EngineSpec("dir", ("m",)), ("m",)),
        (EngineSpec("dir", ("m",), adapters=(PIRATE, POET)), ("m", "base", "pirate", "poet")),
    ],
)
def test_the_names_of_a_model(spec: EngineSpec, names: tuple[str, ...]) -> None:
    assert spec.names == names


def test_the_adapter_of_a_name() -> None:
    spec = EngineSpec("dir", ("m",), adapters=(PIRATE, POET))
    assert spec.adapters_by_name() == {"m": PIRATE, "base": None, "pirate": PIRATE, "poet": POET}
    assert EngineSpec("dir", ("m",)).adapters_by_name() == {}


def test_a_served_name_stays_the_models_own() -> None:
    assert EngineSpec("dir", ("base",), adapters=(PIRATE,)).adapters_by_name()["base"] == PIRATE
    assert EngineSpec("dir", ("poet",), adapters=(PIRATE, POET)).adapters_by_name()["poet"] == PIRATE


def test_what_a_spec_says_itself() -> None:
    spec = EngineSpec(
        "m",
        engine_args={"dtype": "auto"},
        flags=(("max-num-seqs", "8"), ("no-enforce-eager", None)),
        engine_args_json={"seed": 0},
        defaults={"block_size": 16},
    )
    assert {"dtype", "max_num_seqs", "enforce_eager", "seed"} <= spec.said()
    assert "block_size" not in spec.said()
