# SPDX-License-Identifier: MIT
"""ModelOptions and --option to a plan: a row per field of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from chatdelta import InvalidRequest
from localai_proto import backend_pb2 as pb
from vllm_nnrp.addresses import Address
from vllm_nnrp.load_options import ModelPlan, decode_model_options, parse_options, plan_from_command_line


def plan(**fields: Any) -> ModelPlan:
    return decode_model_options(pb.ModelOptions(**{"Model": "org/m", **fields}), exists=lambda path: path == "/here")


TYPED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"ContextSize": 4096, "Seed": 1, "Threads": 8, "NBatch": 512, "MMap": True, "NGPULayers": 99}, {}),
    ({"MaxModelLen": 2048}, {"max_model_len": 2048}),
    ({"Quantization": "awq"}, {"quantization": "awq"}),
    ({"LoadFormat": "auto"}, {"load_format": "auto"}),
    ({"DType": "float32"}, {"dtype": "float32"}),
    ({"Tokenizer": "t"}, {"tokenizer": "t"}),
    ({"GPUMemoryUtilization": 0.9}, {"gpu_memory_utilization": 0.9}),
    ({"TensorParallelSize": 2}, {"tensor_parallel_size": 2}),
    ({"TrustRemoteCode": True}, {"trust_remote_code": True}),
    ({"EnforceEager": True}, {"enforce_eager": True}),
    ({"DisableLogStatus": True}, {"disable_log_stats": True}),
    ({"LimitImagePerPrompt": 2, "LimitAudioPerPrompt": 1}, {"limit_mm_per_prompt": {"image": 2, "audio": 1}}),
]


@pytest.mark.parametrize(("fields", "expected"), TYPED)
def test_typed_fields(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert dict(plan(**fields).spec.engine_args) == expected


@pytest.mark.parametrize(
    ("fields", "model"),
    [
        ({}, "org/m"),
        ({"ModelFile": "/here"}, "/here"),
        ({"ModelFile": "/not/here"}, "org/m"),
        ({"Model": "", "ModelFile": "/not/here"}, "/not/here"),
    ],
)
def test_the_model_is_the_file_where_it_exists(fields: dict[str, Any], model: str) -> None:
    assert plan(**fields).spec.model == model


def test_the_identity_and_the_served_name_are_the_name_core_knows() -> None:
    decoded = plan(ModelFile="/here")
    assert (decoded.identity, decoded.spec.names) == ("org/m", ("org/m",))
    renamed = plan(Options=["served_model_name:n"])
    assert (renamed.identity, renamed.spec.names) == ("org/m", ("n",))


OPTIONS: list[tuple[list[str], dict[str, Any]]] = [
    (["tool_parser:hermes", "reasoning_parser:qwen3"], {"tool_parser": "hermes", "reasoning_parser": "qwen3"}),
    (["--tool-parser:a", "tool_parser:b"], {"tool_parser": "a"}),
    (["tool_parser:b", "--tool-call-parser=a"], {"tool_parser": "a"}),
    (["--reasoning-parser=a", "reasoning_parser:b"], {"reasoning_parser": "a"}),
    (["tool_parser:a", "tool_parser:b"], {"tool_parser": "b"}),
    (["tool_parser:"], {"tool_parser": ""}),
    (["--enable-prefix-caching"], {"flags": (("enable-prefix-caching", None),)}),
    (["--max-num-seqs:8", "--block-size=16"], {"flags": (("max-num-seqs", "8"), ("block-size", "16"))}),
    (['--hf-overrides:{"a":"b=c"}'], {"flags": (("hf-overrides", '{"a":"b=c"}'),)}),
    (["--url=http://h:1"], {"flags": (("url", "http://h:1"),)}),
    (["nnrp:nnrp://127.0.0.1:0"], {"nnrp": Address("127.0.0.1", 0)}),
    (["vae:some/file", ""], {"warnings": ("option 'vae' is unknown and ignored",)}),
]


@pytest.mark.parametrize(("options", "expected"), OPTIONS)
def test_options(options: list[str], expected: dict[str, Any]) -> None:
    parsed = parse_options(options)
    assert {name: getattr(parsed, name) for name in expected} == expected


def test_the_same_grammar_on_the_command_line() -> None:
    decoded = plan_from_command_line("dir", ["tool_parser:hermes", "--enforce-eager"])
    assert (decoded.spec.model, decoded.spec.names, decoded.spec.tool_parser) == ("dir", ("dir",), "hermes")
    assert decoded.spec.flags == (("enforce-eager", None),)


def test_engine_args_are_an_object() -> None:
    assert dict(plan(EngineArgs='{"seed":1}').spec.engine_args_json) == {"seed": 1}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"EngineArgs": "{"}, "EngineArgs is not valid JSON"),
        ({"EngineArgs": "[]"}, "EngineArgs must be a JSON object"),
        ({"Options": ["nnrp:x"]}, "option nnrp: 'x' is no NNRP address"),
        ({"Options": ["--tool-parser"]}, "option --tool-parser needs a value"),
        ({"Embeddings": True}, "Embeddings"),
        ({"Reranking": True}, "Reranking"),
        ({"LoraAdapter": "a"}, "LoraAdapter"),
        ({"LoraAdapters": ["a"]}, "LoraAdapter"),
        ({"DraftModel": "a"}, "DraftModel"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        plan(**fields)


def test_what_has_no_meaning_any_more_warns() -> None:
    assert plan(SwapSpace=4).warnings == ("SwapSpace has no meaning for this vLLM and is ignored",)
