# SPDX-License-Identifier: MIT
"""ModelOptions and the command line to a plan: every field of the contract has a row, or is shown to do nothing."""

from __future__ import annotations

from typing import Any

import pytest

from chatdelta import InvalidRequest
from localai_proto import backend_pb2 as pb
from vllm_engine import Adapter
from vllm_nnrp.addresses import NNRP_FORMS, Address, NetworkUrl
from vllm_nnrp.load_options import ModelPlan, decode_model_options, plan_from_command_line
from vllm_nnrp.model_fields import MODEL_FIELDS

HERE = {"/here", "/models/adapters/pirate", "/models/tok", "/models/draft"}


def plan(**fields: Any) -> ModelPlan:
    return decode_model_options(pb.ModelOptions(**{"Model": "org/m", **fields}), exists=HERE.__contains__)


def test_every_field_of_the_contract_is_in_the_table() -> None:
    assert set(MODEL_FIELDS) == {field.name for field in pb.ModelOptions.DESCRIPTOR.fields}


# The fields with an engine argument of their own

TYPED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"MaxModelLen": 2048}, {"max_model_len": 2048}),
    ({"Quantization": "awq"}, {"quantization": "awq"}),
    ({"LoadFormat": "auto"}, {"load_format": "auto"}),
    ({"DType": "float32"}, {"dtype": "float32"}),
    ({"Tokenizer": "org/t"}, {"tokenizer": "org/t"}),
    ({"Tokenizer": "tok", "ModelPath": "/models"}, {"tokenizer": "/models/tok"}),
    ({"GPUMemoryUtilization": 0.9}, {"gpu_memory_utilization": 0.9}),
    ({"TensorParallelSize": 2}, {"tensor_parallel_size": 2}),
    ({"TrustRemoteCode": True}, {"trust_remote_code": True}),
    ({"EnforceEager": True}, {"enforce_eager": True}),
    ({"DisableLogStatus": True}, {"disable_log_stats": True}),
    ({"LimitImagePerPrompt": 2}, {"limit_mm_per_prompt": {"image": 2}}),
    ({"LimitVideoPerPrompt": 1, "LimitAudioPerPrompt": 3}, {"limit_mm_per_prompt": {"video": 1, "audio": 3}}),
    ({"Embeddings": True}, {"runner": "pooling"}),
    ({"Reranking": True}, {"runner": "pooling"}),
    (
        {"DraftModel": "org/small"},
        {"speculative_config": {"model": "org/small", "num_speculative_tokens": 3}},
    ),
    (
        {"DraftModel": "/models/draft", "ModelPath": "/models", "Options": ["draft_tokens:5"]},
        {"speculative_config": {"model": "/models/draft", "num_speculative_tokens": 5}},
    ),
    (  # LocalAI joins its folder and a hub id
        {"DraftModel": "/models/org/small", "ModelPath": "/models"},
        {"speculative_config": {"model": "org/small", "num_speculative_tokens": 3}},
    ),
    (  # the form of a companion artifact
        {"Options": ["draft_model:draft"], "ModelPath": "/models"},
        {"speculative_config": {"model": "/models/draft", "num_speculative_tokens": 3}},
    ),
]


@pytest.mark.parametrize(("fields", "expected"), TYPED)
def test_typed_fields(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert dict(plan(**fields).spec.engine_args) == expected


def value_of(name: str) -> Any:
    """Some value of the field that is not its zero."""
    field = pb.ModelOptions.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None:
        message = getattr(pb, field.message_type.name)()
        return [message] if field.is_repeated else message
    value: Any = {"string": "x", "bool": True, "int32": 7, "float": 0.5}[
        {field.TYPE_STRING: "string", field.TYPE_BOOL: "bool", field.TYPE_INT32: "int32", field.TYPE_FLOAT: "float"}[
            field.type
        ]
    ]
    return [value] if field.is_repeated else value


@pytest.mark.parametrize("name", [name for name, field in MODEL_FIELDS.items() if not field.is_used])
def test_a_field_of_no_use_changes_nothing(name: str) -> None:
    assert plan(**{name: value_of(name)}).spec.key() == plan().spec.key()


@pytest.mark.parametrize("name", [name for name, field in MODEL_FIELDS.items() if field.is_used])
def test_a_field_of_use_is_shown_above_or_below(name: str) -> None:
    shown = {name for fields, _ in TYPED for name in fields}
    assert name in shown | {
        "Model",
        "ModelFile",
        "EngineArgs",
        "LoraAdapter",
        "LoraAdapters",
        "LoraScale",
        "LoraScales",
    }


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


def test_flags_and_engine_arguments_are_kept_for_the_engine() -> None:
    spec = plan(Options=["--max-num-seqs:8"], EngineArgs='{"seed":1}').spec
    assert (spec.flags, dict(spec.engine_args_json)) == ((("max-num-seqs", "8"),), {"seed": 1})


def test_where_nnrp_is_wanted() -> None:
    assert plan().nnrp == ()
    assert plan(Options=["nnrp:nnrp://127.0.0.1:0"]).nnrp == (NetworkUrl("nnrp", Address("127.0.0.1", 0)),)


# LoRA

ADAPTERS: list[tuple[dict[str, Any], tuple[Adapter, ...]]] = [
    ({"LoraAdapter": "/a/pirate"}, (Adapter("pirate", "/a/pirate"),)),
    ({"LoraAdapter": "adapters/pirate", "ModelPath": "/models"}, (Adapter("pirate", "/models/adapters/pirate"),)),
    ({"LoraAdapter": "/a/x", "LoraAdapters": ["/a/x", "/a/y"]}, (Adapter("x", "/a/x"), Adapter("y", "/a/y"))),
    ({"LoraAdapter": "/a/x", "LoraScale": 1.0}, (Adapter("x", "/a/x"),)),
    ({"LoraAdapters": ["/a/x", "/a/y"], "LoraScales": [1.0, 0.0]}, (Adapter("x", "/a/x"), Adapter("y", "/a/y"))),
    ({"LoraAdapters": [""], "LoraScale": 0.5}, ()),
    (
        {"Options": ["lora_adapter:adapters/pirate"], "ModelPath": "/models"},
        (Adapter("pirate", "/models/adapters/pirate"),),
    ),
]


@pytest.mark.parametrize(("fields", "adapters"), ADAPTERS)
def test_adapters(fields: dict[str, Any], adapters: tuple[Adapter, ...]) -> None:
    assert plan(**fields).spec.adapters == adapters


def test_of_several_adapters_a_request_gets_one_which_is_said() -> None:
    decoded = plan(LoraAdapters=["/a/x", "/a/y"])
    assert decoded.warnings == ("2 LoRA adapters: a request gets one, x unless it names another",)
    assert decoded.spec.names == ("org/m", "base", "x", "y")


# The command line


def test_the_same_grammar_on_the_command_line() -> None:
    decoded = plan_from_command_line("dir", ["tool_parser:hermes", "--enforce-eager", "lora_adapter:/a/x"])
    assert (decoded.identity, decoded.spec.model, decoded.spec.tool_parser) == ("dir", "dir", "hermes")
    assert decoded.spec.names == ("dir", "base", "x")
    assert decoded.spec.flags == (("enforce-eager", None),)


# Refusals and warnings


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"EngineArgs": "{"}, "EngineArgs is not valid JSON"),
        ({"EngineArgs": "[]"}, "EngineArgs must be a JSON object"),
        ({"Options": ["nnrp:x"]}, f"option nnrp: 'x' is no NNRP address: {NNRP_FORMS} is expected"),
        ({"Options": ["draft_tokens:none"]}, "option draft_tokens: 'none' is no whole number of at least 1"),
        ({"Options": ["--tool-parser"]}, "option --tool-parser needs a value"),
        (
            {"LoraAdapter": "a", "LoraScale": 0.7},
            "a LoRA scale of 0.7: vLLM applies an adapter in full; scale lora_alpha in its adapter_config.json instead",
        ),
        (
            {"LoraAdapters": ["a", "b"], "LoraScales": [1, 2]},
            "a LoRA scale of 2: vLLM applies an adapter in full; scale lora_alpha in its adapter_config.json instead",
        ),
        ({"LoraAdapters": ["x/a", "y/a"]}, "two LoRA adapters are called a"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        plan(**fields)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"SwapSpace": 4}, "SwapSpace has no meaning for this vLLM and is ignored"),
        ({"Options": ["draft_tokens:4"]}, "draft_tokens has no meaning without a draft model and is ignored"),
    ],
)
def test_what_has_no_meaning_warns(fields: dict[str, Any], warning: str) -> None:
    assert plan(**fields).warnings == (warning,)


def test_an_unknown_option_warns() -> None:
    assert plan(Options=["tool_parsr:x"]).warnings == (
        "unknown option 'tool_parsr'; did you mean tool_parser?; ignored",
    )
