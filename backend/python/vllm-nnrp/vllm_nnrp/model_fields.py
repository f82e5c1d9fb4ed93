# SPDX-License-Identifier: MIT
"""Every field of LocalAI's ModelOptions, as data: what becomes of it. `load_options` reads them by it.

Zero and empty mean "not set" for every field: proto3 has no other way to say it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class ModelField:
    """`what` is for readers. With `engine_arg` the value becomes that engine argument as it is."""

    what: str
    engine_arg: str = ""
    is_used: bool = True


def _as(engine_arg: str) -> ModelField:
    return ModelField(f"`{engine_arg}`", engine_arg)


def _limit(modality: str) -> ModelField:
    return ModelField(f"`limit_mm_per_prompt` of `{modality}`")


def _unused(why: str) -> ModelField:
    return ModelField(why, is_used=False)


_OTHER_ENGINES = _unused("of other engines")
_IMAGES = _unused("of image generators")

MODEL_FIELDS: Mapping[str, ModelField] = MappingProxyType(
    {
        # the model
        "Model": ModelField("the model where `ModelFile` does not exist, a hub id; also the identity and served name"),
        "ModelFile": ModelField("the model, where it exists"),
        "ModelPath": ModelField(
            "LocalAI's folder of models: relative tokenizers, adapters and draft models are from there"
        ),
        "Tokenizer": ModelField("`tokenizer`"),
        "Quantization": _as("quantization"),
        "LoadFormat": _as("load_format"),
        "DType": _as("dtype"),
        "TrustRemoteCode": _as("trust_remote_code"),
        "Embeddings": ModelField("`runner` is `pooling`: the model makes embeddings and no text"),
        "Reranking": ModelField("`runner` is `pooling`: the model ranks documents and makes no text"),
        "LoraAdapter": ModelField("an adapter for every request (below)"),
        "LoraAdapters": ModelField("adapters; a request gets the first unless it names another (below)"),
        "LoraScale": ModelField("1 or nothing; any other is refused (below)"),
        "LoraScales": ModelField("like `LoraScale`"),
        "DraftModel": ModelField("the model of `speculative_config`, with `draft_tokens` tokens at a time (below)"),
        "MaxModelLen": _as("max_model_len"),
        "GPUMemoryUtilization": _as("gpu_memory_utilization"),
        "TensorParallelSize": _as("tensor_parallel_size"),
        "EnforceEager": _as("enforce_eager"),
        "DisableLogStatus": _as("disable_log_stats"),
        "LimitImagePerPrompt": _limit("image"),
        "LimitVideoPerPrompt": _limit("video"),
        "LimitAudioPerPrompt": _limit("audio"),
        "Options": ModelField("this backend's options and vLLM's flags (above)"),
        "EngineArgs": ModelField("engine arguments, a JSON object; the last word"),
        # of no use here
        "ContextSize": _unused("LocalAI always sends a number; a model knows its length, `MaxModelLen` shortens it"),
        "Seed": _unused("LocalAI sends a random one; each request has its own"),
        "SwapSpace": _unused("vLLM has none any more; a value gives a warning"),
        "EnableScore": _unused("a model that makes text gives scores, too, and needs no switch"),
        "LoraBase": _unused("the base of an adapter is the model"),
        "MMProj": _unused("of other engines: a projector is part of a model folder"),
        "CacheTypeKey": _unused("of other engines: the engine argument is `kv_cache_dtype`"),
        "CacheTypeValue": _unused("of other engines: the engine argument is `kv_cache_dtype`"),
        "FlashAttention": _unused("of other engines: the engine argument is `attention_backend`"),
        "RopeScaling": _unused("of other engines: the engine argument is `hf_overrides`"),
        "Overrides": _unused("of other engines: the engine argument is `hf_overrides`"),
        "Type": _unused("of other engines: config.json says what a model is"),
        "GrammarTriggers": _unused("of other engines: tool calls are found by parsers"),
        "Proxy": _unused("of LocalAI's proxy backend"),
        **dict.fromkeys(
            (
                *("NBatch", "F16Memory", "MLock", "MMap", "VocabOnly", "LowVRAM", "NUMA", "NGPULayers", "MainGPU"),
                *("TensorSplit", "Threads", "RopeFreqBase", "RopeFreqScale", "RMSNormEps", "NGQA", "NoMulMatQ"),
                *("YarnExtFactor", "YarnAttnFactor", "YarnBetaFast", "YarnBetaSlow", "NoKVOffload"),
            ),
            _OTHER_ENGINES,
        ),
        **dict.fromkeys(
            (
                *("PipelineType", "SchedulerType", "CUDA", "CFGScale", "IMG2IMG", "CLIPModel", "CLIPSubfolder"),
                *("CLIPSkip", "ControlNet"),
            ),
            _IMAGES,
        ),
        "AudioPath": _unused("of audio backends"),
    }
)

PROMPT_LIMITS = (
    ("LimitImagePerPrompt", "image"),
    ("LimitVideoPerPrompt", "video"),
    ("LimitAudioPerPrompt", "audio"),
)
