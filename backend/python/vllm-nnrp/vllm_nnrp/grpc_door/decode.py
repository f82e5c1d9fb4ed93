# SPDX-License-Identifier: MIT
"""PredictOptions as a request: an OpenAI body that vLLM's own request models validate.

proto3 scalars have no presence, so the meaning of each zero is decided here, once:

| field                             | body                          | zero or empty means                            |
|-----------------------------------|-------------------------------|------------------------------------------------|
| Prompt                            | prompt (completion body)      | use Messages, else EmbeddingTokens             |
| Messages                          | messages (chat body)          | –; with UseTokenizerTemplate they win          |
| EmbeddingTokens                   | prompt, as token ids          | –                                              |
| Temperature                       | temperature                   | greedy                                         |
| TopP                              | top_p                         | 1.0, so for every value <= 0                   |
| TopK                              | top_k                         | 0: off                                         |
| MinP                              | min_p                         | 0: off                                         |
| Tokens                            | max_tokens                    | absent, and nothing but the context is a limit |
| Seed                              | seed                          | 0 is a seed; -1 is none                        |
| StopPrompts                       | stop, without empty strings   | absent                                         |
| FrequencyPenalty, PresencePenalty | same in lower case            | 0: none                                        |
| Penalty                           | repetition_penalty            | unset: the model's own default, else 1.0       |
| IgnoreEOS                         | ignore_eos                    | absent                                         |
| LogitBias                         | logit_bias                    | absent                                         |
| Logprobs, TopLogprobs             | logprobs (and top_logprobs)   | absent when neither is positive                |
| Grammar                           | structured_outputs            | absent                                         |
| Tools, ToolChoice                 | tools, tool_choice            | absent (decode_tools)                          |
| Metadata                          | chat_template_kwargs, effort  | absent (decode_messages)                       |
| CorrelationId                     | the origin's peer_request_id  | none; it is never the engine's request id      |
| Images, Videos, Audios            | parts of the last user message| none (decode_media)                            |

Repeat, TypicalP, TailFreeSamplingZ, Mirostat*, NKeep, Batch, Threads, NDraft, PromptCache*, Rope*, NegativePrompt*,
F16KV, MLock, MMap, MainGPU, TensorSplit, Debug*, PenalizeNL, Embeddings: other engines' fields, ignored without a word.
"""

from __future__ import annotations

import math
from typing import Any

from chatdelta import ChatRequest, GenerationRequest, InvalidRequest, Origin, PromptRequest, RequestPolicy
from localai_proto import backend_pb2 as pb
from vllm_nnrp.grpc_door.decode_media import add_media, refuse_media
from vllm_nnrp.grpc_door.decode_messages import decode_messages, decode_metadata
from vllm_nnrp.grpc_door.decode_tools import decode_tool_choice, decode_tools
from vllm_nnrp.json_text import parse_json_object
from vllm_nnrp.wire_floats import float32

MAX_PEER_ID = 128
POLICY = RequestPolicy(fills_context=True)


def decode_predict(
    options: pb.PredictOptions, *, request_id: str, model: str, tool_parser: bool, multimodal: bool = False
) -> GenerationRequest:
    """The request of an RPC. `tool_parser`, `multimodal`: what the engine has.

    Raises InvalidRequest, UnsupportedOperation.
    """
    refuse_media(options, multimodal=multimodal)
    origin = Origin(door="grpc", transport="grpc", peer_request_id=_peer_id(options.CorrelationId))
    body: dict[str, Any] = {"model": model, **_sampling(options)}
    logprobs = max(options.Logprobs, options.TopLogprobs)
    # Anthropic's, Ollama's and the Responses endpoint send a prompt of joined messages beside the messages themselves.
    if not options.Messages or (options.Prompt and not options.UseTokenizerTemplate):
        body["prompt"] = _prompt(options)
        if logprobs > 0:
            body["logprobs"] = logprobs
        if options.Grammar:
            body["structured_outputs"] = decode_grammar(options.Grammar)
        return PromptRequest(request_id, body, origin, POLICY)
    body["messages"] = decode_messages(options.Messages)
    add_media(body["messages"], options)
    body.update(decode_metadata(options.Metadata))
    tools = decode_tools(options.Tools, options.ToolChoice)
    body.update(tools)
    if logprobs > 0:
        body["logprobs"], body["top_logprobs"] = True, logprobs
    # With function.strict core sends a grammar of bare JSON beside the tools; it would forbid the model's own markup.
    if options.Grammar and not ("tools" in tools and tool_parser):
        body["structured_outputs"] = decode_grammar(options.Grammar)
    return ChatRequest(request_id, body, origin, POLICY)


def tools_active(request: GenerationRequest, *, tool_parser: bool) -> bool:
    """Whether the answer may hold tool calls that a native parser finds."""
    return tool_parser and bool(request.body.get("tools")) and request.body.get("tool_choice") != "none"


def is_left_to_core(options: pb.PredictOptions, request: GenerationRequest) -> bool:
    """Whether core looks for reasoning and calls in plain text: it rendered the prompt, and offers tools."""
    is_offered = bool(options.Tools) and decode_tool_choice(options.ToolChoice) != "none"
    return is_offered and isinstance(request, PromptRequest)


def decode_grammar(grammar: str) -> dict[str, Any]:
    """JSON text is a schema, anything else a GBNF grammar."""
    if grammar.lstrip().startswith("{"):
        return {"json": parse_json_object(grammar, "Grammar")}
    return {"grammar": grammar}


def _sampling(options: pb.PredictOptions) -> dict[str, Any]:
    top_p, penalty = _finite(options, "TopP"), _finite(options, "Penalty")
    body: dict[str, Any] = {
        "temperature": _finite(options, "Temperature"),
        "top_p": top_p if top_p > 0 else 1.0,
        "top_k": max(options.TopK, 0),
        "min_p": _finite(options, "MinP"),
        "frequency_penalty": _finite(options, "FrequencyPenalty"),
        "presence_penalty": _finite(options, "PresencePenalty"),
    }
    if penalty:
        body["repetition_penalty"] = penalty
    if options.Tokens > 0:
        body["max_tokens"] = options.Tokens
    if options.Seed != -1:
        body["seed"] = options.Seed
    if stop := [text for text in options.StopPrompts if text]:
        body["stop"] = stop
    if options.IgnoreEOS:
        body["ignore_eos"] = True
    if options.LogitBias:
        body["logit_bias"] = _logit_bias(options.LogitBias)
    return body


def _finite(options: pb.PredictOptions, field: str) -> float:
    value = float32(getattr(options, field))
    if not math.isfinite(value):
        raise InvalidRequest(f"{field} must be a finite number", param=field)
    return value


def _logit_bias(text: str) -> dict[str, float]:
    bias = parse_json_object(text, "LogitBias")
    for token, value in bias.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (token.isascii() and token.isdigit() and is_number):
            raise InvalidRequest("LogitBias must map token ids to numbers", code="invalid_body", param="LogitBias")
    return bias


def _prompt(options: pb.PredictOptions) -> str | list[int]:
    if options.Prompt:
        return str(options.Prompt)
    if options.EmbeddingTokens:
        return list(options.EmbeddingTokens)
    raise InvalidRequest("neither Prompt nor Messages is given", code="missing_messages", param="Messages")


def _peer_id(text: str) -> str:
    """A label for the log: no line breaks, no megabytes."""
    return "".join(character for character in text[:MAX_PEER_ID] if character.isprintable())
