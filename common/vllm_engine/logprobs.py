# SPDX-License-Identifier: MIT
"""vLLM's per-token logprob dictionaries as values: the sampled token by its id, the alternatives by rank."""

from __future__ import annotations

from typing import Any

from chatdelta import TokenLogprob

FLOOR = -9999.0  # vLLM's own server says this for minus infinity, which JSON cannot


def token_logprobs(output: Any, tokenizer: Any) -> tuple[TokenLogprob, ...]:
    """One entry per token of a CompletionOutput, or () where none were asked for."""
    if not output.logprobs:
        return ()
    return tuple(
        _entry(token_id, candidates, tokenizer)
        for token_id, candidates in zip(output.token_ids, output.logprobs, strict=True)
    )


def _entry(token_id: int, candidates: Any, tokenizer: Any) -> TokenLogprob:
    ranked = sorted(candidates.items(), key=lambda item: (item[1].rank is None, item[1].rank))
    alternatives = tuple(_token(other_id, logprob, tokenizer) for other_id, logprob in ranked)
    sampled = next(entry for entry in alternatives if entry.token_id == token_id)
    top = alternatives if len(alternatives) > 1 else ()
    return TokenLogprob(sampled.token_id, sampled.token, sampled.token_bytes, sampled.logprob, top)


def _token(token_id: int, logprob: Any, tokenizer: Any) -> TokenLogprob:
    text = logprob.decoded_token if logprob.decoded_token is not None else tokenizer.decode([token_id])
    return TokenLogprob(token_id, text, text.encode("utf-8", "replace"), max(logprob.logprob, FLOOR))
