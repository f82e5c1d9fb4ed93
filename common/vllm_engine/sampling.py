# SPDX-License-Identifier: MIT
"""Sampling values of a request: how many tokens it may have, and what must hold before the engine gets them.

vLLM checks most of it, too, but often without naming the field; and what it does not check may end its engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from chatdelta import InvalidRequest
from vllm_engine.shapes import refusal

GREEDY = 1e-5  # vLLM takes temperatures below for zero
INT32 = 2**31 - 1

# field: (least, greatest), both allowed. Wider bounds are for the integers of the engine's messages.
BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "n": (1, INT32),
        "temperature": (0, 2),
        "max_tokens": (1, INT32),
        "max_completion_tokens": (1, INT32),
        "min_tokens": (0, INT32),
        "top_k": (-1, INT32),
        "min_p": (0, 1),
        "presence_penalty": (-2, 2),
        "frequency_penalty": (-2, 2),
        "thinking_token_budget": (-1, INT32),
    }
)


def output_budget(*, room: int, requested: int | None, default: int | None, override: int | None) -> int:
    """The smallest of what the context has room for, what was asked for (else the model's default), and an override.

    All in tokens. A prompt that leaves no room gives a budget below 1, which vLLM refuses with its own message.
    """
    wanted = requested if requested is not None else default
    return min(limit for limit in (room, wanted, override) if limit is not None)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the loaded model sets bounds with."""

    vocab_size: int
    max_logprobs: int  # -1: none
    default_temperature: float
    max_choices: int = INT32
    counts_thinking: bool = True  # thinking_token_budget works
    speculates: bool = False  # with a draft model vLLM has neither min_p nor logit_bias


def check_sampling(request: Any, limits: Limits, *, budget: int) -> None:
    """Check vLLM's chat or completion request; `budget` is how many tokens its answer may have.

    Raises InvalidRequest with the name of the field.
    """
    for name, (least, greatest) in BOUNDS.items():
        value = getattr(request, name, None)
        if value is not None and not least <= value <= greatest:
            raise refusal(name, f"must be in [{least}, {greatest}], not {value}")
    if request.repetition_penalty is not None and request.repetition_penalty <= 0:
        raise refusal("repetition_penalty", f"must be above 0, not {request.repetition_penalty}")
    if budget < 1:
        raise InvalidRequest(
            "the prompt leaves no room for an answer", code="context_length_exceeded", param="input_tokens"
        )
    if request.min_tokens > budget:
        raise refusal("min_tokens", f"must not be above the {budget} tokens that the answer may have")
    if request.truncate_prompt_tokens == 0:
        raise refusal("truncate_prompt_tokens", "must be at least 1, or -1 for all that fit")
    if (loops := request.repetition_detection) is not None and max(loops.max_pattern_size, loops.min_count) > INT32:
        raise refusal("repetition_detection", f"must not hold numbers above {INT32}")
    _check_texts(request)
    _check_choices(request, limits)
    _check_against_model(request, limits)


def _check_texts(request: Any) -> None:
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or ()
    if not all(stops):
        raise refusal("stop", "must not hold an empty string")
    # vLLM takes the spaces off and looks for the first token of what is left.
    if not all(word.strip() for word in getattr(request, "bad_words", None) or ()):  # 0.22: of a chat only
        raise refusal("bad_words", "must not hold a word of nothing but white space")


def _check_choices(request: Any, limits: Limits) -> None:
    if (request.n or 1) > limits.max_choices:
        raise refusal("n", f"must be at most {limits.max_choices}, not {request.n}")
    temperature = request.temperature if request.temperature is not None else limits.default_temperature
    if (request.n or 1) > 1 and temperature < GREEDY:
        raise refusal("n", f"must be 1 at temperature 0, not {request.n}: every choice would be the same")


def _check_against_model(request: Any, limits: Limits) -> None:
    for token_id in request.stop_token_ids or ():
        if not 0 <= token_id < limits.vocab_size:  # vLLM's min_tokens indexes the logits with it and dies of it
            raise refusal("stop_token_ids", f"must hold tokens of the model's {limits.vocab_size}, not {token_id}")
    is_chat = hasattr(request, "top_logprobs")
    wanted = request.top_logprobs if is_chat else request.logprobs
    most = limits.vocab_size if limits.max_logprobs == -1 else limits.max_logprobs
    if wanted is not None and (limits.vocab_size if wanted == -1 else wanted) > most:
        raise refusal("top_logprobs" if is_chat else "logprobs", f"must be at most {most}, not {wanted}")
    if getattr(request, "thinking_token_budget", None) is not None and not limits.counts_thinking:
        raise refusal("thinking_token_budget", "needs a model that is loaded with a reasoning parser")
    for name in ("min_p", "logit_bias"):
        if limits.speculates and getattr(request, name):
            raise refusal(name, "cannot be used with speculative decoding")
