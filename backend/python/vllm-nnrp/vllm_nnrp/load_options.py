# SPDX-License-Identifier: MIT
"""LocalAI's ModelOptions, or the command line's --model and --option, as an EngineSpec and what goes with it.

Pure, but for two questions to the file system: whether ModelFile exists, and what a model's folder says it is. vLLM's
own fields and parser names are checked later by the engine, which knows them.

Fields not named here (Seed, Threads, NBatch, rope, mmap, …) are for other engines and are ignored without a word: core
always sends them. ContextSize is ignored on purpose: core always sends a number, and a vLLM model knows its own length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from chatdelta import InvalidRequest
from localai_proto import backend_pb2 as pb
from vllm_engine import EngineSpec
from vllm_nnrp.addresses import Address, AddressError, parse_nnrp_url
from vllm_nnrp.json_text import parse_json_object
from vllm_nnrp.parser_defaults import ParserChoice, choose_parsers, model_references
from vllm_nnrp.wire_floats import float32

# ModelOptions field → EngineArgs field. Zero and empty mean "not set" for every one of them.
TYPED_FIELDS = (
    ("Quantization", "quantization"),
    ("LoadFormat", "load_format"),
    ("DType", "dtype"),
    ("Tokenizer", "tokenizer"),
    ("GPUMemoryUtilization", "gpu_memory_utilization"),
    ("TensorParallelSize", "tensor_parallel_size"),
    ("MaxModelLen", "max_model_len"),
    ("TrustRemoteCode", "trust_remote_code"),
    ("EnforceEager", "enforce_eager"),
    ("DisableLogStatus", "disable_log_stats"),
)
PROMPT_LIMITS = (
    ("LimitImagePerPrompt", "image"),
    ("LimitVideoPerPrompt", "video"),
    ("LimitAudioPerPrompt", "audio"),
)
PARSER_FLAGS = {
    "tool-parser": "tool_parser",
    "tool-call-parser": "tool_parser",
    "reasoning-parser": "reasoning_parser",
}


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What to load, the name it answers to in ModelIdentity, and where its options want NNRP (None: they don't say)."""

    spec: EngineSpec
    identity: str
    nnrp: Address | None = None
    warnings: tuple[str, ...] = ()
    tool_parser: ParserChoice | None = None
    reasoning_parser: ParserChoice | None = None


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """The repeated `Options`, sorted out. A parser is None where no option speaks of it."""

    tool_parser: str | None
    reasoning_parser: str | None
    served_model_name: str | None
    nnrp: Address | None
    flags: tuple[tuple[str, str | None], ...]
    warnings: tuple[str, ...]


def decode_model_options(options: pb.ModelOptions, *, exists: Callable[[str], bool] | None = None) -> ModelPlan:
    """The plan of a LoadModel. Raises InvalidRequest naming the field."""
    _refuse_other_tasks(options)
    exists = exists or (lambda path: Path(path).exists())
    typed: dict[str, Any] = {}
    for field, name in TYPED_FIELDS:
        value = getattr(options, field)
        if value:
            typed[name] = float32(value) if isinstance(value, float) else value
    limits = {name: value for field, name in PROMPT_LIMITS if (value := getattr(options, field))}
    if limits:
        typed["limit_mm_per_prompt"] = limits
    use_file = bool(options.ModelFile) and exists(options.ModelFile)
    return _plan(
        model=options.ModelFile if use_file else options.Model or options.ModelFile,
        identity=options.Model,
        parsed=parse_options(options.Options),
        typed=typed,
        engine_args_json=parse_json_object(options.EngineArgs, "EngineArgs") if options.EngineArgs else {},
        warnings=["SwapSpace has no meaning for this vLLM and is ignored"] if options.SwapSpace else [],
    )


def plan_from_command_line(model: str, options: Sequence[str]) -> ModelPlan:
    """The plan of `--model M --option …`. Raises InvalidRequest."""
    return _plan(model=model, identity=model, parsed=parse_options(options), typed={}, engine_args_json={}, warnings=[])


def parse_options(options: Sequence[str]) -> ParsedOptions:
    """Sort out `key:value` and `--flag[:value|=value]`. The `--` form of a parser wins; else the last of a key does."""
    values: dict[str, str] = {}
    explicit: dict[str, str] = {}
    flags: list[tuple[str, str | None]] = []
    warnings: list[str] = []
    for option in (text.strip() for text in options):
        if option.startswith("--"):
            name, value = _split_flag(option)
            parser = PARSER_FLAGS.get(name.replace("_", "-"))
            if parser is None:
                flags.append((name, value))
            elif value:
                explicit[parser] = value
            else:
                raise InvalidRequest(f"option --{name} needs a value", param="Options")
            continue
        key, _, value = option.partition(":")
        if key in ("tool_parser", "reasoning_parser", "served_model_name", "nnrp"):
            values[key] = value
        elif option:
            warnings.append(f"option {key!r} is unknown and ignored")
    return ParsedOptions(
        tool_parser=explicit.get("tool_parser", values.get("tool_parser")),
        reasoning_parser=explicit.get("reasoning_parser", values.get("reasoning_parser")),
        served_model_name=values.get("served_model_name") or None,
        nnrp=_nnrp(values.get("nnrp")),
        flags=tuple(flags),
        warnings=tuple(warnings),
    )


def _split_flag(option: str) -> tuple[str, str | None]:
    """`--name`, `--name:value` or `--name=value`, whichever separator comes first."""
    text = option[2:]
    for position, character in enumerate(text):
        if character in ":=":
            return text[:position], text[position + 1 :]
    return text, None


def _nnrp(url: str | None) -> Address | None:
    if not url:
        return None
    try:
        return parse_nnrp_url(url)
    except AddressError as exc:
        raise InvalidRequest(f"option nnrp: {exc}", param="Options") from exc


def _refuse_other_tasks(options: pb.ModelOptions) -> None:
    for field in ("Embeddings", "Reranking"):
        if getattr(options, field):
            raise InvalidRequest(f"{field}: this backend serves text generation only", param=field)
    if options.LoraAdapter or options.LoraAdapters:
        raise InvalidRequest("LoraAdapter: adapters are not supported yet", param="LoraAdapter")
    if options.DraftModel:
        raise InvalidRequest("DraftModel: use EngineArgs speculative_config instead", param="DraftModel")


def _plan(
    *,
    model: str,
    identity: str,
    parsed: ParsedOptions,
    typed: dict[str, Any],
    engine_args_json: dict[str, Any],
    warnings: list[str],
) -> ModelPlan:
    served = parsed.served_model_name or identity
    tool, reasoning = choose_parsers(
        parsed.tool_parser, parsed.reasoning_parser, model_references(model, identity) if model else ()
    )
    spec = EngineSpec(
        model=model,
        served_names=(served,) if served else (),
        tool_parser=tool.name,
        reasoning_parser=reasoning.name,
        engine_args=MappingProxyType(typed),
        flags=parsed.flags,
        engine_args_json=MappingProxyType(engine_args_json),
    )
    return ModelPlan(spec, identity, parsed.nnrp, (*parsed.warnings, *warnings), tool, reasoning)
