# SPDX-License-Identifier: MIT
"""LocalAI's ModelOptions, or the command line's --model and --option, as an EngineSpec and what goes with it.

Pure, but for a few questions to the file system (which paths exist, what a model's folder says it is) and one to the
installed packages (a vLLM for CPUs?): for a worker thread. vLLM's own fields and parser names are checked later by the
engine, which knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from chatdelta import InvalidRequest
from localai_proto import backend_pb2 as pb
from vllm_engine import Adapter, EngineSpec
from vllm_engine.installation import serves_on_cpu
from vllm_nnrp.addresses import NnrpUrl
from vllm_nnrp.defaults import BACKEND, Choice, Load, defaults_for
from vllm_nnrp.json_text import parse_json_object
from vllm_nnrp.model_fields import MODEL_FIELDS, PROMPT_LIMITS
from vllm_nnrp.own_options import ParsedOptions, parse_options
from vllm_nnrp.parser_defaults import NONE, model_references
from vllm_nnrp.wire_floats import float32

PARSERS = ("tool_parser", "reasoning_parser")
# Each drafted token costs a step of the draft model. With the usual acceptance of 60 to 80 % a step of the model gives
# 2.2 to 3 tokens at three drafted ones; a fourth would add 0.1 to 0.4.
DRAFT_TOKENS = 3
Exists = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What to load, the name it answers to in ModelIdentity, and where its options want NNRP, if they say.

    `choices` are what somebody may wonder about, by the name of the option or engine argument.
    """

    spec: EngineSpec
    identity: str
    nnrp: tuple[NnrpUrl, ...] = ()
    warnings: tuple[str, ...] = ()
    choices: Mapping[str, Choice] = field(default_factory=lambda: MappingProxyType({}))
    text_in_message: bool | None = None  # None: the process decides


def decode_model_options(
    options: pb.ModelOptions, *, backend: str = BACKEND, exists: Exists | None = None
) -> ModelPlan:
    """The plan of a LoadModel. `backend` is the name LocalAI has for us. Raises InvalidRequest naming the field."""
    exists = exists or (lambda path: Path(path).exists())
    parsed = parse_options(options.Options)
    adapters, warnings = _adapters(options, parsed, exists)
    if options.SwapSpace:
        warnings.append("SwapSpace has no meaning for this vLLM and is ignored")
    typed = _typed(options, parsed, exists)
    if parsed.values.get("draft_tokens") and "speculative_config" not in typed:
        warnings.append("draft_tokens has no meaning without a draft model and is ignored")
    use_file = bool(options.ModelFile) and exists(options.ModelFile)
    served = parsed.values.get("served_model_name") or options.Model
    engine_args_json = parse_json_object(options.EngineArgs, "EngineArgs") if options.EngineArgs else {}
    spec = EngineSpec(
        model=options.ModelFile if use_file else options.Model or options.ModelFile,
        served_names=(served,) if served else (),
        adapters=adapters,
        engine_args=MappingProxyType(typed),
        flags=parsed.flags,
        engine_args_json=MappingProxyType(engine_args_json),
    )
    spec, choices = _with_defaults(spec, parsed, options.Model, backend)
    return ModelPlan(
        spec,
        options.Model,
        parsed.values.get("nnrp") or (),
        (*parsed.warnings, *warnings),
        choices,
        parsed.values.get("text_in_message"),
    )


def plan_from_command_line(model: str, options: Sequence[str]) -> ModelPlan:
    """The plan of `--model M --option …`. Raises InvalidRequest."""
    return decode_model_options(pb.ModelOptions(Model=model, Options=options), backend="")


def _typed(options: pb.ModelOptions, parsed: ParsedOptions, exists: Exists) -> dict[str, Any]:
    """The engine arguments that have a field of their own."""
    typed: dict[str, Any] = {}
    for name, model_field in MODEL_FIELDS.items():
        if model_field.engine_arg and (value := getattr(options, name)):
            typed[model_field.engine_arg] = float32(value) if isinstance(value, float) else value
    if options.Tokenizer:
        typed["tokenizer"] = _located(options.Tokenizer, options.ModelPath, exists)
    if limits := {modality: limit for name, modality in PROMPT_LIMITS if (limit := getattr(options, name))}:
        typed["limit_mm_per_prompt"] = limits
    if options.Embeddings or options.Reranking:
        typed["runner"] = "pooling"
    if draft := options.DraftModel or parsed.values.get("draft_model"):
        typed["speculative_config"] = {
            "model": _located(draft, options.ModelPath, exists),
            "num_speculative_tokens": parsed.values.get("draft_tokens") or DRAFT_TOKENS,
        }
    return typed


def _adapters(options: pb.ModelOptions, parsed: ParsedOptions, exists: Exists) -> tuple[tuple[Adapter, ...], list[str]]:
    """The LoRA adapters, and what to say about them. Raises InvalidRequest for what vLLM does not do with one."""
    named = (options.LoraAdapter, *options.LoraAdapters, parsed.values.get("lora_adapter"))
    paths = dict.fromkeys(path for path in named if path)
    if not paths:
        return (), []
    for scale in (options.LoraScale, *options.LoraScales):
        if scale not in (0.0, 1.0):
            raise InvalidRequest(
                f"a LoRA scale of {float32(scale):g}: vLLM applies an adapter in full; scale lora_alpha in its "
                "adapter_config.json instead",
                param="LoraScale",
            )
    adapters = tuple(Adapter(Path(path).name, _located(path, options.ModelPath, exists)) for path in paths)
    names = [adapter.name for adapter in adapters]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidRequest(f"two LoRA adapters are called {twice}", param="LoraAdapters")
    if len(adapters) == 1:
        return adapters, []
    return adapters, [f"{len(names)} LoRA adapters: a request gets one, {names[0]} unless it names another"]


def _located(reference: str, folder: str, exists: Exists) -> str:
    """A path or a hub id, by what is in LocalAI's folder of models.

    Relative paths are meant from there. Of a draft model that is a hub id LocalAI makes a path in there to nothing.
    """
    if not folder:
        return reference
    if exists(joined := str(Path(folder, reference))):
        return joined
    path = Path(reference)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else reference


def _with_defaults(
    spec: EngineSpec, parsed: ParsedOptions, identity: str, backend: str
) -> tuple[EngineSpec, Mapping[str, Choice]]:
    """`spec` with its parsers and its default engine arguments, and each of these choices with its reason."""
    load = Load(
        references=model_references(spec.model, identity) if spec.model else (),
        said=spec.said() | parsed.values.keys(),
        generates=_generates(spec),
        on_cpu=serves_on_cpu(),
    )
    defaults = defaults_for(load, backend)
    parsers = {half: _parser(half, parsed, defaults) for half in PARSERS} if load.generates else {}
    engine_args = {name: choice for name, choice in defaults.items() if name not in PARSERS}
    spec = replace(
        spec,
        **{half: choice.value for half, choice in parsers.items()},
        defaults=MappingProxyType({name: choice.value for name, choice in engine_args.items()}),
    )
    return spec, MappingProxyType(parsers | engine_args)


def _parser(half: str, parsed: ParsedOptions, defaults: Mapping[str, Choice]) -> Choice:
    """What the option says, even that there shall be none (as LocalAI takes an empty one); else the default."""
    if half not in parsed.values:
        return defaults.get(half, Choice(None, "no known family"))
    name = parsed.values[half]
    return Choice(name if name and name.lower() != NONE else None, "option")


def _generates(spec: EngineSpec) -> bool:
    flags = {name.replace("-", "_"): text for name, text in spec.flags}
    return ({**spec.engine_args, **flags, **spec.engine_args_json}).get("runner") != "pooling"
