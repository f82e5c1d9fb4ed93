# SPDX-License-Identifier: MIT
"""Which fields of a chat body are a client's to set. vLLM's request model offers more, for whoever runs the server.

A field that a newer vLLM adds is in neither list, and is refused until somebody has looked at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import Any

from chatdelta import InvalidRequest

TAKEN = frozenset(
    {
        # what is asked
        *("model", "messages", "documents", "user"),
        *("tools", "tool_choice", "parallel_tool_calls"),
        *("add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template_kwargs"),
        *("reasoning_effort", "include_reasoning", "thinking_token_budget"),
        *("truncate_prompt_tokens", "truncation_side", "cache_salt"),
        # how it is sampled
        *("n", "seed", "temperature", "top_p", "top_k", "min_p"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty"),
        *("logit_bias", "allowed_token_ids", "bad_words", "response_format", "structured_outputs"),
        # where it ends
        *("max_tokens", "max_completion_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos"),
        "repetition_detection",
        # what comes back
        *("stream", "stream_options", "logprobs", "top_logprobs", "logprob_token_ids"),
        *("include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens"),
    }
)

# field: (the value that asks for nothing, why any other is refused)
REFUSED: Mapping[str, tuple[Any, str]] = MappingProxyType(
    {
        "chat_template": (None, "a template is a program, and only the model's own is run"),
        "mm_processor_kwargs": (None, "an image scaled to another size than the model's ends the engine"),
        "media_io_kwargs": (None, "how media are opened is the server's to say"),
        "kv_transfer_params": (None, "it makes the engine fetch its cache from elsewhere"),
        "ec_transfer_params": (None, "it makes the engine fetch its cache from elsewhere"),
        "vllm_xargs": (None, "its keys reach extensions of the engine, the transfer of its cache among them"),
        "priority": (0, "the order of requests is the server's to say"),
        "request_id": (None, "the engine's ids are the server's; a label goes beside the body"),
        "use_beam_search": (False, "beam search is not served"),
        "length_penalty": (1.0, "it belongs to beam search, which is not served"),
        "echo": (False, "an answer holds what is new only"),
        "prompt_logprobs": (None, "an answer has no place for them"),
        "return_tokens_as_token_ids": (False, "tokens are named by their text and bytes"),
        "return_token_ids": (False, "an answer has no place for them"),
        "return_token_offsets": (False, "an answer has no place for them"),
        "return_prompt_text": (False, "an answer has no place for it"),
        "return_assistant_tokens_mask": (False, "an answer has no place for it"),
    }
)


def taken_fields(body: Mapping[str, Any], *, offered: Set[str]) -> dict[str, Any]:
    """The fields of `body` that vLLM gets to see; `offered` are those of its request model, all others are dropped.

    Raises InvalidRequest for a field that is not a client's, or that this vLLM does not know yet.
    """
    for name in sorted(body.keys() & TAKEN - offered):
        if body[name] is not None:
            raise InvalidRequest(f"{name} is not known to this vLLM", code="invalid_body", param=name)
    for name in sorted(offered & (body.keys() - TAKEN)):
        nothing, reason = REFUSED.get(name, (None, "it is not served"))
        if body[name] not in (None, {}, nothing):
            raise InvalidRequest(f"{name} cannot be set here: {reason}", code="invalid_body", param=name)
    return {name: body[name] for name in TAKEN & body.keys()}
