# SPDX-License-Identifier: MIT
"""What can be told to be unservable at once, from names and files alone: LocalAI offers every model to everyone.

Texts name a model as it was given, and no path of this machine beyond that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chatdelta import InvalidRequest
from vllm_engine.spec import Adapter, EngineSpec

MAX_JSON_BYTES = 16 << 20
SERVED = "this backend serves Hugging Face model folders"
# A folder is described by the first that it holds; other backends' models are told by their files.
OTHER_FOLDERS = (
    ("adapter_config.json", "is a LoRA adapter: load its base model, and this as its lora_adapter"),
    ("model_index.json", "is a diffusers pipeline"),
    ("*.gguf", "holds GGUF files"),
    ("*.onnx", "holds ONNX files"),
    ("*", "has no config.json"),
    ("", "is empty"),
)
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
TOKENIZERS = ("tokenizer*", "vocab*", "tekken*", "*.model", "*.tiktoken", "tiktoken*")


def refuse_unservable(spec: EngineSpec) -> None:
    """Raise InvalidRequest for a model or an adapter that cannot be served. Reads a few small files."""
    _refuse_model(spec.model)
    if Path(spec.model).is_dir() and not spec.said() & {"tokenizer", "skip_tokenizer_init"}:
        _refuse_without_tokenizer(Path(spec.model))
    for adapter in spec.adapters:
        adapter_rank(adapter)
    for what, path in _other_paths(spec):
        if _looks_like_path(path) and not Path(path).exists():
            raise InvalidRequest(f"{what} not found: {path}", code="model_not_found", param=what)


def _other_paths(spec: EngineSpec) -> Iterator[tuple[str, str]]:
    """What else vLLM will read, a path or a hub id each."""
    engine_args = {**spec.engine_args, **spec.engine_args_json}
    speculative = engine_args.get("speculative_config")
    draft = speculative.get("model") if isinstance(speculative, Mapping) else None
    for what, reference in (("tokenizer", engine_args.get("tokenizer")), ("draft model", draft)):
        if isinstance(reference, str):
            yield what, reference


def _looks_like_path(reference: str) -> bool:
    return Path(reference).is_absolute() or reference.startswith((".", "~"))


def _refuse_model(model: str) -> None:
    name = Path(model).name
    if not model:
        raise InvalidRequest("no model was named", code="missing_model", param="model")
    if model.lower().endswith((".gguf", ".ggml")):
        raise InvalidRequest(f"{name} is a GGUF file; {SERVED}", param="model")
    path = Path(model)
    if _looks_like_path(model) and not path.exists():
        raise InvalidRequest(f"model not found: {model}", code="model_not_found", param="model")
    if path.is_file():
        raise InvalidRequest(f"{name} is a file; {SERVED}", param="model")
    if path.is_dir():
        _refuse_folder(path)


def _refuse_folder(path: Path) -> None:
    if not (path / "config.json").is_file():
        if (path / "params.json").is_file():
            return  # Mistral's own form of a model folder, which vLLM reads too
        what = next(what for pattern, what in OTHER_FOLDERS if not pattern or any(path.glob(pattern)))
        raise InvalidRequest(f"{path.name} {what}; {SERVED}", param="model")
    config = _read_object(path / "config.json", path.name, param="model")
    if not config.keys() & {"model_type", "architectures"}:
        raise InvalidRequest(f"config.json of {path.name} names no kind of model; {SERVED}", param="model")
    if any(path.glob("*.gguf")) and not any(any(path.glob(pattern)) for pattern in WEIGHTS):
        raise InvalidRequest(f"{path.name} has its weights in GGUF files only; {SERVED}", param="model")


def _refuse_without_tokenizer(path: Path) -> None:
    """vLLM would make one up, from the kind of model alone, and answer with noise."""
    if not any(any(path.glob(pattern)) for pattern in TOKENIZERS):
        raise InvalidRequest(f"{path.name} has no tokenizer: name one with the field Tokenizer", param="tokenizer")


def adapter_rank(adapter: Adapter) -> int:
    """The rank of a LoRA adapter. Raises InvalidRequest for one that is missing, or broken where that is easily seen.

    The engine finds the rest when it loads the adapter; to be given a path where there is none would end it.
    """
    path = Path(adapter.path)
    if not path.is_dir():
        reason = "is a file, not a folder with adapter_config.json" if path.is_file() else "was not found"
        raise InvalidRequest(f"LoRA adapter {adapter.name} {reason}", code="adapter_not_found", param="LoraAdapter")
    config = _read_object(path / "adapter_config.json", f"LoRA adapter {adapter.name}", param="LoraAdapter")
    rank = config.get("r")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise InvalidRequest(f"LoRA adapter {adapter.name} has no rank r in adapter_config.json", param="LoraAdapter")
    return rank


def _read_object(path: Path, owner: str, *, param: str) -> Mapping[str, Any]:
    """The JSON object in a file of a model's or an adapter's folder."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(MAX_JSON_BYTES))
    except OSError as exc:
        raise InvalidRequest(f"{owner}: {path.name} cannot be read ({exc.strerror})", param=param) from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidRequest(f"{owner}: {path.name} is not valid JSON", param=param) from exc
    if not isinstance(content, dict):
        raise InvalidRequest(f"{owner}: {path.name} is no JSON object", param=param)
    return content
