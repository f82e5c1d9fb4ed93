# SPDX-License-Identifier: MIT
"""The vLLM families this build serves: what each is tested with, must have, and cannot do. Imports nothing of vLLM.

docs/vllm-compatibility.md is generated from here. A family is a minor line of vLLM; its anchor is the version that is
tested, and another patch release of it is served if it has what the probes look for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vllm_engine.installation import CPU_DISTRIBUTION


@dataclass(frozen=True, slots=True)
class Probe:
    """Something of vLLM's that a binding uses: `module:attribute`, and the parameters it must take."""

    where: str
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """Something this backend does that a family cannot. `fields` are the request fields that are refused for it."""

    name: str
    what: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """One minor line of vLLM. `lacks_*` are parsers that the newest family has and this one has not."""

    name: str
    anchor: str
    module: str
    packages: tuple[str, ...]  # what the anchor is tested with, beside vLLM itself
    probes: tuple[Probe, ...]
    gaps: tuple[Gap, ...] = ()
    lacks_tool_parsers: frozenset[str] = frozenset()
    lacks_reasoning_parsers: frozenset[str] = frozenset()
    more_tool_parsers: frozenset[str] = frozenset()  # that the newest has no more
    saves_process: bool = False  # VLLM_ENABLE_V1_MULTIPROCESSING=0 does, on a CPU
    sizes_kv_by_argument: bool = True  # kv_cache_memory_bytes and gpu_memory_utilization count on a CPU
    wants_preload: bool = False  # on a CPU it looks for two libraries in LD_PRELOAD


def names(module: str, *found: str) -> tuple[Probe, ...]:
    """Probes for names of one module, whatever they take."""
    return tuple(Probe(f"{module}:{name}") for name in found)


ENGINE = (
    Probe("vllm.v1.engine.async_llm:AsyncLLM.from_vllm_config", ("vllm_config", "stat_loggers", "disable_log_stats")),
    Probe("vllm.v1.engine.async_llm:AsyncLLM.abort", ("request_id",)),
    Probe("vllm.v1.engine.async_llm:AsyncLLM.add_lora"),
    *names("vllm.v1.engine.exceptions", "EngineDeadError", "EngineGenerateError"),
    Probe("vllm.engine.arg_utils:AsyncEngineArgs.create_engine_config"),
    *names("vllm.utils.argparse_utils", "FlexibleArgumentParser"),
    *names("vllm.usage.usage_lib", "UsageContext"),
    *names("vllm", "envs"),
    Probe("vllm.sampling_params:RequestOutputKind.DELTA"),
    Probe("vllm.sampling_params:SamplingParams.verify", ("structured_outputs_config", "tokenizer")),
    *names("vllm.sampling_params", "StructuredOutputsParams"),
    Probe("vllm.entrypoints.openai.chat_completion.protocol:ChatCompletionRequest.build_chat_params"),
    Probe("vllm.entrypoints.openai.chat_completion.protocol:ChatCompletionRequest.to_sampling_params"),
    *names("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionNamedToolChoiceParam"),
    *names("vllm.entrypoints.openai.completion.protocol", "CompletionRequest"),
    *names("vllm.entrypoints.openai.engine.protocol", "ErrorResponse"),
    *names("vllm.entrypoints.chat_utils", "MM_PARSER_MAP", "make_tool_call_id"),
    *names("vllm.renderers", "TokenizeParams"),
    *names("vllm.tokenizers", "cached_tokenizer_from_config"),
    *names("vllm.tokenizers.detokenizer_utils", "convert_ids_list_to_tokens", "detokenize_incrementally"),
    *names("vllm.utils.mistral", "is_mistral_tokenizer"),
    *names("vllm.multimodal.media", "MEDIA_CONNECTOR_REGISTRY", "MediaConnector"),
    *names("vllm.multimodal.media", "AudioMediaIO", "ImageMediaIO", "VideoMediaIO"),
    *names("vllm.config.lora", "MaxLoRARanks"),
    *names("vllm.lora.request", "LoRARequest"),
    Probe("vllm.tool_parsers:ToolParserManager.get_tool_parser"),
    *names("vllm.tool_parsers", "ToolParser"),
    *names("vllm.tool_parsers.utils", "UnexpectedAstError", "handle_single_tool"),
    *names("vllm.tool_parsers.llama_tool_parser", "Llama3JsonToolParser"),
    *names("vllm.tool_parsers.mistral_tool_parser", "MistralToolCall"),
    Probe("vllm.reasoning:ReasoningParserManager.get_reasoning_parser"),
)
# Of 0.18 and 0.22, which have no unified parser.
SEPARATE = (
    *names("vllm.entrypoints.openai.chat_completion.stream_harmony", "TokenState", "extract_harmony_streaming_delta"),
    *names(
        "vllm.entrypoints.openai.parser.harmony_utils",
        "get_stop_tokens_for_assistant_actions",
        "get_streamable_parser_for_assistant",
    ),
    *names("vllm.entrypoints.openai.models.protocol", "BaseModelPath"),
    *names("vllm.entrypoints.openai.models.serving", "OpenAIModelRegistry"),
    *names("vllm.entrypoints.chat_utils", "get_history_tool_calls_cnt"),
)
POOLING = (
    *names("vllm.entrypoints.pooling.factories", "init_pooling_io_processors"),
    *names("vllm.entrypoints.pooling.embed.protocol", "EmbeddingCompletionRequest"),
    *names("vllm.entrypoints.pooling.pooling.protocol", "PoolingCompletionRequest"),
    *names("vllm.entrypoints.pooling.scoring.protocol", "RerankRequest"),
    *names("vllm.entrypoints.pooling.typing", "PoolingServeContext"),
    *names("vllm.outputs", "ScoringRequestOutput"),
    *names("vllm.entrypoints.chat_utils", "ChatTemplateConfig"),
)
CALL_IDS = names("vllm.entrypoints.chat_utils", "get_tool_call_id_type")
GENERATE = ("trace_headers", "priority", "lora_request", "reasoning_ended")
SERVER_RENDER = "vllm.entrypoints.serve.render.serving:OpenAIServingRender"

STRICT_CALLS = Gap(
    "strict-tool-calls",
    "tool_choice required and named are held to bare JSON, not to the family's own markup; "
    "with auto, calls are not held to the tools' schemas",
)
SERVE_PLUGIN = Gap("vllm-serve", "no NNRP door inside vllm serve: this vLLM has no endpoint plugins")
REASONING_COST = Gap(
    "reasoning-cost",
    "the native reasoning parsers are given all the text so far with each token, so cost grows with it",
)
LOGPROB_IDS = Gap("logprob_token_ids", "no log-probabilities of chosen tokens", fields=("logprob_token_ids",))
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.name: family
        for family in (
            Family(
                "0.18",
                "0.18.1",
                "vllm_engine.bindings.v0_18",
                ("transformers==4.57.6", "torch==2.10.0"),
                (
                    *ENGINE,
                    Probe("vllm.v1.engine.async_llm:AsyncLLM.generate", GENERATE),
                    Probe(f"{SERVER_RENDER}.render_chat", ("request",)),
                    Probe(f"{SERVER_RENDER}.render_completion", ("request",)),
                    *SEPARATE,
                ),
                (
                    STRICT_CALLS,
                    SERVE_PLUGIN,
                    REASONING_COST,
                    LOGPROB_IDS,
                    Gap(
                        "pooling",
                        "no embeddings and no reranking: this vLLM has no processors for them outside its server",
                    ),
                    Gap("thinking_token_budget", "no limit for reasoning alone", fields=("thinking_token_budget",)),
                    Gap("truncation_side", "a prompt is cut on its left only", fields=("truncation_side",)),
                    Gap("reasoning_effort", "none, low, medium and high; not minimal, xhigh and max"),
                    Gap(
                        "kv_cache_memory_bytes",
                        "ignored on a CPU, where VLLM_CPU_KVCACHE_SPACE (GiB) alone sizes the cache",
                    ),
                    Gap(
                        "templates-on-loop",
                        "chat templates and tokenizers run on the event loop: a very long prompt makes others wait",
                    ),
                    Gap("mm_processor_cache", "off, because a rendered image cannot be kept out of it"),
                ),
                lacks_tool_parsers=frozenset(
                    {
                        *("apertus", "cohere_command3", "cohere_command4", "deepseek_v4", "gemma4", "hy_v3", "inkling"),
                        *("lfm2", "mimo", "minicpm5", "minimax_m3", "poolside_v1"),
                    }
                ),
                lacks_reasoning_parsers=frozenset(
                    {
                        *("cohere_command3", "cohere_command4", "deepseek_v4", "gemma4", "glm47", "hy_v3", "inkling"),
                        *("mimo", "minimax_m3", "poolside_v1"),
                    }
                ),
                more_tool_parsers=frozenset({"minimax"}),
                sizes_kv_by_argument=False,
                wants_preload=True,
            ),
            Family(
                "0.22",
                "0.22.1",
                "vllm_engine.bindings.v0_22",
                ("transformers==4.57.6", "torch==2.11.0"),
                (
                    *ENGINE,
                    Probe("vllm.v1.engine.async_llm:AsyncLLM.generate", (*GENERATE, "reasoning_parser_kwargs")),
                    Probe(f"{SERVER_RENDER}.render_chat", ("request", "skip_mm_cache")),
                    Probe(f"{SERVER_RENDER}.render_completion", ("request", "skip_mm_cache")),
                    *SEPARATE,
                    *CALL_IDS,
                    *POOLING,
                ),
                (
                    STRICT_CALLS,
                    SERVE_PLUGIN,
                    REASONING_COST,
                    LOGPROB_IDS,
                    Gap(
                        "lora-on-cpu", "on a CPU an engine with LoRA adapters does not start with PyPI's build of torch"
                    ),
                ),
                lacks_tool_parsers=frozenset({"inkling", "minicpm5", "minimax_m3"}),
                lacks_reasoning_parsers=frozenset({"glm47", "inkling", "minimax_m3"}),
                more_tool_parsers=frozenset({"minimax"}),
            ),
            Family(
                "0.26",
                "0.26.0",
                "vllm_engine.bindings.v0_26",
                ("transformers==5.8.1", "torch==2.11.0"),
                (
                    *ENGINE,
                    Probe("vllm.v1.engine.async_llm:AsyncLLM.generate", (*GENERATE, "reasoning_parser_kwargs")),
                    Probe("vllm.renderers.online_renderer:OnlineRenderer.render_chat", ("request", "skip_mm_cache")),
                    Probe("vllm.renderers.online_renderer:OnlineRenderer.render_completion", ("request",)),
                    Probe("vllm.parser:ParserManager.get_parser", ("is_harmony",)),
                    Probe("vllm.parser.harmony:HarmonyParser.parse_delta", ("finished",)),
                    *names("vllm.parser.utils", "count_history_tool_calls"),
                    *names("vllm.parser.engine.parser_engine", "ParserEngine"),
                    *names("vllm.tool_parsers.utils", "find_tool_properties"),
                    *CALL_IDS,
                    *POOLING,
                ),
                saves_process=True,
            ),
        )
    }
)
NEWEST = FAMILIES["0.26"]
# Parsers of the newest, and those that did their work before there were these.
PARSER_BEFORE: Mapping[str, str] = MappingProxyType({"glm47": "glm45"})
BESIDE_VLLM = ("mistral-common<1.13",)  # 1.13 breaks the Mistral parsers of all of them
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_LINE = re.compile(r"(\d+)\.(\d+)")
TESTED_ANCHORS = tuple(family.anchor for family in FAMILIES.values())


def family_name(version: str) -> str:
    """`0.26` of `0.26.1`."""
    return ".".join(version.split(".")[:2])


def install_command(distribution: str, family: Family) -> str:
    """How to get the family's anchor; the distribution for CPUs is built on torch's CPU build, which PyPI has not."""
    index = f"--extra-index-url {TORCH_CPU_INDEX} " if distribution == CPU_DISTRIBUTION else ""
    wanted = " ".join(f"'{each}'" for each in (f"{distribution}=={family.anchor}", *family.packages, *BESIDE_VLLM))
    return f"pip install {index}{wanted}"


def is_newer(version: str) -> bool:
    """Whether a version is of a line after the newest family's."""
    return _line(version) > _line(NEWEST.anchor)


def _line(version: str) -> tuple[int, ...]:
    """Empty, so older than all, for what begins with no numbers."""
    found = _LINE.match(version)
    return tuple(map(int, found.groups())) if found else ()


def families_with(kind: str, parser: str) -> list[str]:
    """The families that have a parser which others lack, and all where none does; `kind` as a load's messages say."""
    is_tool = kind == "tool parser"
    gone = is_tool and any(parser in family.more_tool_parsers for family in FAMILIES.values())
    if gone:
        return [family.name for family in FAMILIES.values() if parser in family.more_tool_parsers]
    return [
        family.name
        for family in FAMILIES.values()
        if parser not in (family.lacks_tool_parsers if is_tool else family.lacks_reasoning_parsers)
    ]
