# SPDX-License-Identifier: MIT
"""Each token together with its own text.

With stop strings vLLM holds text back, so a delta brings a token and the text of earlier ones. Parsers that look at
token ids then change their state too early and cut markup in two. A tokenizer without a fast backend gives the text of
a merged delta all with its last token. Here the tokens wait for their text instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

Decode = Callable[[int], str]


class Aligner:
    """Pairs of one choice, put right. The texts always join to what the engine said."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._waiting: deque[tuple[int, int]] = deque()  # token id, how long its text is
        self._text = ""

    def feed(self, text: str, token_id: int | None, *, finished: bool) -> Iterator[tuple[str, int | None]]:
        self._text += text
        if token_id is not None:
            self._waiting.append((token_id, len(self._decode(token_id))))
        while self._waiting and self._waiting[0][1] <= len(self._text):
            ready, length = self._waiting.popleft()
            yield self._cut(length), ready
        if finished:
            self._waiting.clear()  # what the engine cut off, a stop string or the end token, was not said
            if self._text:
                yield self._cut(len(self._text)), None

    def _cut(self, length: int) -> str:
        piece, self._text = self._text[:length], self._text[length:]
        return piece


def token_decoder(tokenizer: Any, *, skip_special_tokens: bool) -> Decode:
    """The text a token completes, token by token, as vLLM's incremental detokenizer gives it."""
    backend = fast_backend(tokenizer)
    if backend is None:
        return _SlowDecoder(tokenizer, skip_special_tokens)
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=skip_special_tokens)
    return lambda token_id: stream.step(backend, token_id) or ""


def fast_backend(tokenizer: Any) -> Any:
    """The tokenizers.Tokenizer inside, or None."""
    return getattr(tokenizer, "backend_tokenizer", None) or getattr(tokenizer, "_tokenizer", None)


class _SlowDecoder:
    """vLLM's own function for tokenizers without a fast backend (Mistral's)."""

    def __init__(self, tokenizer: Any, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._token_ids: list[int] = []
        self._tokens: list[str] = []
        self._offsets = (0, 0)

    def __call__(self, token_id: int) -> str:
        from vllm.tokenizers.detokenizer_utils import detokenize_incrementally

        self._token_ids.append(token_id)
        tokens, text, *offsets = detokenize_incrementally(
            self._tokenizer, self._token_ids, self._tokens, *self._offsets, skip_special_tokens=self._skip
        )
        self._tokens.extend(tokens)
        self._offsets = (offsets[0], offsets[1])
        return str(text)
