# SPDX-License-Identifier: MIT
"""Which parsers a model's name stands for, what an option changes, and that the data, its doc and vLLM agree."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from chatdelta import Engine, InvalidRequest
from chatdelta.testing import ScriptedEngine
from chatserving import EngineHost
from localai_proto import backend_pb2 as pb
from tests.vllm_nnrp.doors import no_hook
from vllm_engine import EngineSpec
from vllm_nnrp.load_options import decode_model_options, plan_from_command_line
from vllm_nnrp.loading import Loader
from vllm_nnrp.parser_defaults import Table, defaults_for, markdown, model_references, normalise_model_id, table

ROOT = Path(__file__).resolve().parent.parent.parent

NAMES = [
    ("Qwen/Qwen3-0.6B", "qwen3-0.6b"),
    ("qwen3_0.6b", "qwen3-0.6b"),
    ("TheBloke/Some_Model.GGUF", "some-model"),
    ("/models/org/Folder/", "folder"),
    (" Model ", "model"),
    ("", ""),
]


@pytest.mark.parametrize(("reference", "name"), NAMES)
def test_normalise(reference: str, name: str) -> None:
    assert normalise_model_id(reference) == name


# model, tool parser, reasoning parser; by hand, from the models' own cards
MODELS: list[tuple[str, str | None, str | None]] = [
    ("Qwen/Qwen3-0.6B", "hermes", "qwen3"),
    ("Qwen/Qwen3-4B-Thinking-2507", "hermes", "qwen3"),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "hermes", None),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", "hermes", None),
    ("Qwen/Qwen3-Next-80B-A3B-Thinking", "hermes", "qwen3"),
    ("Qwen/Qwen3-VL-8B-Instruct", "hermes", None),
    ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_xml", None),
    ("Qwen/Qwen3.5-27B", "qwen3_xml", "qwen3"),
    ("Qwen/Qwen3.6-35B-A3B", "qwen3_xml", "qwen3"),
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", "hermes", None),
    ("Qwen/QwQ-32B", "hermes", "deepseek_r1"),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4_pythonic", None),
    ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama3_json", None),
    ("meta-llama/Llama-3.3-70B-Instruct", "llama3_json", None),
    ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes", None),
    ("NousResearch/Hermes-3-Llama-3.2-3B", "hermes", None),
    ("NousResearch/Hermes-2-Pro-Llama-3-8B", "hermes", None),
    ("nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama3_json", None),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", None, None),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_xml", "nemotron_v3"),
    ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", None, "nemotron_v3"),
    ("mistralai/Mistral-Nemo-Instruct-2407", "mistral", None),
    ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral", None),
    ("mistralai/Mistral-Small-4-119B-2603", "mistral", "mistral"),
    ("mistralai/Magistral-Small-2509", "mistral", "mistral"),
    ("mistralai/Ministral-3-8B-Instruct-2512", "mistral", None),
    ("mistralai/Ministral-3-8B-Reasoning-2512", "mistral", "mistral"),
    ("mistralai/Devstral-Small-2507", "mistral", None),
    ("mistralai/Pixtral-12B-2409", "mistral", None),
    ("mistralai/Mistral-7B-v0.1", None, None),
    ("deepseek-ai/DeepSeek-R1-0528", "deepseek_v3", "deepseek_r1"),
    ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", None, "deepseek_r1"),
    ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", None, "deepseek_r1"),
    ("deepseek-ai/DeepSeek-V3-0324", "deepseek_v3", "deepseek_v3"),
    ("deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek_v31", "deepseek_v3"),
    ("deepseek-ai/DeepSeek-V3.2", "deepseek_v32", "deepseek_v3"),
    ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek_v31", "deepseek_v3"),
    ("zai-org/GLM-4.6", "glm45", "glm45"),
    ("zai-org/GLM-4.7-Flash", "glm47", "glm47"),
    ("zai-org/GLM-5", "glm47", "glm47"),
    ("zai-org/GLM-4-32B-0414", None, None),
    ("google/gemma-4-31B-it", "gemma4", "gemma4"),
    ("google/functiongemma-270m-it", "functiongemma", None),
    ("ibm-granite/granite-4.0-h-small", "granite4", None),
    ("ibm-granite/granite-3.2-8b-instruct", "granite", "granite"),
    ("MiniMaxAI/MiniMax-M2.5", "minimax_m2", "minimax_m2"),
    ("MiniMaxAI/MiniMax-M3", "minimax_m3", "minimax_m3"),
    ("MiniMaxAI/MiniMax-M1-80k", None, None),
    ("moonshotai/Kimi-K2-Thinking", "kimi_k2", "kimi_k2"),
    ("moonshotai/Kimi-K2-Instruct-0905", "kimi_k2", None),
    ("allenai/Olmo-3-7B-Instruct", "olmo3", None),
    ("allenai/Olmo-3.1-32B-Think", "olmo3", "olmo3"),
    ("allenai/OLMo-2-1124-7B-Instruct", None, None),
    ("baidu/ERNIE-4.5-21B-A3B-Thinking", "ernie45", "ernie45"),
    ("baidu/ERNIE-4.5-21B-A3B-PT", None, None),
    ("microsoft/Phi-4-mini-instruct", "phi4_mini_json", None),
    ("microsoft/phi-4", None, None),
    ("openai/gpt-oss-20b", "openai", "openai_gptoss"),
    ("internlm/internlm2_5-7b-chat", "internlm", None),
    ("Salesforce/Llama-xLAM-2-8b-fc-r", "xlam", None),
    ("HuggingFaceTB/SmolLM2-135M-Instruct", None, None),
]


@pytest.mark.parametrize(("model", "tool", "reasoning"), MODELS, ids=[row[0] for row in MODELS])
def test_the_parsers_of_a_model(model: str, tool: str | None, reasoning: str | None) -> None:
    assert defaults_for(model) == (tool, reasoning)


def test_the_first_name_that_belongs_to_a_family_counts() -> None:
    assert defaults_for("my-assistant", "Qwen/QwQ-32B") == ("hermes", "deepseek_r1")
    assert defaults_for("openai/gpt-oss-20b", "Qwen/QwQ-32B") == ("openai", "openai_gptoss")
    assert defaults_for("", "my-assistant") == (None, None)


def test_the_longest_pattern_is_looked_at_first() -> None:
    lengths = [len(pattern) for pattern in table().patterns()]
    assert lengths == sorted(lengths, reverse=True)
    for pattern in table().families:
        assert table().match([pattern.replace("*", "-x-")]) == pattern, "another pattern hides this one"


# options, tool parser, reasoning parser of Qwen/Qwen3-0.6B
OPTIONS: list[tuple[list[str], str | None, str | None]] = [
    ([], "hermes", "qwen3"),
    (["tool_parser:qwen3_xml"], "qwen3_xml", "qwen3"),
    (["--reasoning-parser=deepseek_r1"], "hermes", "deepseek_r1"),
    (["tool_parser:none"], None, "qwen3"),
    (["tool_parser:"], None, "qwen3"),  # core's own rule: an option that names the half blocks the default
    (["reasoning_parser:None"], "hermes", None),
    (["--tool-call-parser:none", "tool_parser:hermes", "reasoning_parser:none"], None, None),
]


@pytest.mark.parametrize(("options", "tool", "reasoning"), OPTIONS)
def test_an_option_wins_for_its_own_half(options: list[str], tool: str | None, reasoning: str | None) -> None:
    by_flag = plan_from_command_line("Qwen/Qwen3-0.6B", options).spec
    by_load = decode_model_options(pb.ModelOptions(Model="Qwen/Qwen3-0.6B", Options=options)).spec
    for spec in (by_flag, by_load):
        assert (spec.tool_parser, spec.reasoning_parser) == (tool, reasoning)


def folder(path: Path, **config: str) -> str:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def test_a_folder_is_known_by_its_name(tmp_path: Path) -> None:
    assert defaults_for(*model_references(folder(tmp_path / "Qwen3-0.6B"))) == ("hermes", "qwen3")


def test_a_snapshot_of_the_hub_is_known_by_the_folder_around_it(tmp_path: Path) -> None:
    path = folder(tmp_path / "models--openai--gpt-oss-20b/snapshots/0123abc")
    assert defaults_for(*model_references(path)) == ("openai", "openai_gptoss")


def test_a_folder_of_any_name_is_known_by_its_config(tmp_path: Path) -> None:
    path = folder(tmp_path / "assistant", _name_or_path="Qwen/QwQ-32B")
    assert defaults_for(*model_references(path)) == ("hermes", "deepseek_r1")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"_name_or_path": 3}', '{"_name_or_path": ""}'])
def test_a_config_that_says_nothing_is_no_reason_to_fail(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert model_references(str(tmp_path)) == (str(tmp_path),)


def test_the_name_it_was_asked_for_comes_first(tmp_path: Path) -> None:
    path = folder(tmp_path / "Qwen3-0.6B")
    plan = decode_model_options(pb.ModelOptions(Model="openai/gpt-oss-20b", ModelFile=path))
    assert (plan.spec.model, plan.spec.tool_parser) == (path, "openai")


def loader(error: InvalidRequest | None = None) -> Loader:
    async def open_scripted(_spec: EngineSpec) -> Engine:
        if error is not None:
            raise error
        return ScriptedEngine(())

    return Loader(EngineHost(drain_s=0), open_scripted, before=no_hook, after=no_hook)


@pytest.mark.asyncio
async def test_the_choice_is_logged_once_with_its_source(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    plan = plan_from_command_line("Qwen/Qwen3-0.6B", ["reasoning_parser:none"])
    load = loader()
    await load.load(plan)
    await load.load(plan)  # the same model again: nothing is built
    chosen = [message for message in caplog.messages if "_parser: " in message]
    assert chosen == ["tool_parser: hermes (default of the family qwen3)", "reasoning_parser: none (option)"]
    await load.free()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "lacks it (default of the family command-a-plus; the option tool_parser:none does without)"),
        (["tool_parser:cohere_command4"], "lacks it"),
    ],
)
async def test_a_default_that_cannot_be_had_names_its_way_out(options: list[str], message: str) -> None:
    load = loader(InvalidRequest("lacks it", param="tool parser"))
    with pytest.raises(InvalidRequest) as caught:
        await load.load(plan_from_command_line("CohereLabs/command-a-plus-05-2026", options))
    assert str(caught.value) == message


# The file


def test_the_doc_is_generated_from_the_data() -> None:
    assert (ROOT / "docs/parsers.md").read_text(encoding="utf-8") == markdown(table()), (
        "run `python -m vllm_nnrp.parser_defaults > docs/parsers.md`"
    )


def test_the_module_prints_the_doc() -> None:
    command = [sys.executable, "-m", "vllm_nnrp.parser_defaults"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == markdown(table())


def test_the_file_at_the_root_is_the_one_that_is_used() -> None:
    packaged = ROOT / "backend/python/vllm-nnrp/vllm_nnrp/parser_defaults.json"
    assert (ROOT / "parser_defaults.json").resolve() == packaged


def named(data: Table, kind: str) -> set[str]:
    return {name for family in data.families.values() if (name := getattr(family, kind)) is not None}


@pytest.mark.parametrize("kind", ["tool_parser", "reasoning_parser"])
def test_no_parser_is_in_a_family_and_in_the_list_of_those_without(kind: str) -> None:
    assert not named(table(), kind) & set(getattr(table(), f"{kind}s_without_family"))


# vLLM 0.26

NOT_ON_THIS_MACHINE = {
    ("tool_parser", "cohere_command3"): "cohere_melody",
    ("tool_parser", "cohere_command4"): "cohere_melody",
    ("reasoning_parser", "cohere_command3"): "cohere_melody",
    ("reasoning_parser", "cohere_command4"): "cohere_melody",
    ("tool_parser", "minimax_m3"): "Rust",
}


def registered() -> dict[str, set[str]]:
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    return {
        "tool_parser": set(ToolParserManager.list_registered()),
        "reasoning_parser": set(ReasoningParserManager.list_registered()),
    }


@pytest.mark.engine
@pytest.mark.parametrize(("kind", "count"), [("tool_parser", 44), ("reasoning_parser", 28)])
def test_every_parser_of_vllm_is_in_a_family_or_in_the_list_without(kind: str, count: int) -> None:
    ours = named(table(), kind) | set(getattr(table(), f"{kind}s_without_family"))
    assert ours == registered()[kind]
    assert len(ours) == count


@pytest.mark.engine
def test_every_parser_can_be_used_but_those_that_are_listed_with_their_reason() -> None:
    from vllm_engine.bindings import select_binding
    from vllm_engine.installation import find_installation
    from vllm_engine.parser_extensions import refuse_without_extension

    binding = select_binding(find_installation(), allow_untested=True)
    refused: dict[tuple[str, str], str] = {}
    for kind, names in registered().items():
        for name in sorted(names):
            half: Any = {kind: name}
            spec = EngineSpec("m", **half)
            try:
                binding.check_parsers(spec)
                refuse_without_extension(spec.tool_parser)
            except InvalidRequest as exc:
                refused[kind, name] = str(exc)
    missing = {key: word for key, word in NOT_ON_THIS_MACHINE.items() if word == "Rust" or find_spec(word) is None}
    assert refused.keys() == missing.keys()
    for key, word in missing.items():
        assert word in refused[key]
