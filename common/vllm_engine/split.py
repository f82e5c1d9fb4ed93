# SPDX-License-Identifier: MIT
"""One token at a time, whatever size the engine's deltas have.

vLLM merges deltas a consumer was too slow to take. Its parsers are right only when fed single tokens, so the text of a
merged delta is cut at the token boundaries that the tokenizer's own incremental decoder gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vllm_engine.alignment import fast_backend, token_decoder


class TokenSplitter:
    """Cuts one choice's delta texts. The engine's text is never changed: the pieces always join to it."""

    def __init__(self, tokenizer: Any, *, skip_special_tokens: bool) -> None:
        # A tokenizer without a fast backend: the whole text goes with the last token, and the parsers' Aligner cuts it.
        has_fast_backend = fast_backend(tokenizer) is not None
        self._decode = token_decoder(tokenizer, skip_special_tokens=skip_special_tokens) if has_fast_backend else None
        self._decoded = 0  # characters our decoder has given so far
        self._emitted = 0  # characters the engine has given so far; it may hold some back for stop strings

    def split(self, text: str, token_ids: Sequence[int]) -> Iterator[tuple[str, int]]:
        """(text, token id) for each token, in order; the last one gets what remains of `text`."""
        start = 0
        last = len(token_ids) - 1
        for position, token_id in enumerate(token_ids):
            if self._decode is not None:
                self._decoded += len(self._decode(token_id))
            if position == last:
                end = len(text)
            else:
                end = max(start, min(self._decoded - self._emitted, len(text)))
            yield text[start:end], token_id
            start = end
        self._emitted += len(text)
