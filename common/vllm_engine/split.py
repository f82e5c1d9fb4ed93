# SPDX-License-Identifier: MIT
"""One token at a time, whatever size the engine's deltas have.

vLLM merges deltas a consumer was too slow to take. Its parsers are right only when fed single tokens, so the text of a
merged delta is cut at the token boundaries that the tokenizer's own incremental decoder gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from vllm_engine.alignment import Decode, fast_backend, token_decoder


class TokenSplitter:
    """Cuts one choice's delta texts. The engine's text is never changed: the pieces always join to it.

    `holds_text`: the engine may hold text back (stop strings), so that a token does not come with its own text.
    """

    def __init__(self, tokenizer: Any, *, skip_special_tokens: bool, holds_text: bool = False) -> None:
        # A tokenizer without a fast backend: the whole text goes with the last token, and the parsers' Aligner cuts it.
        self._lengths: _Lengths | None = None
        if fast_backend(tokenizer) is not None:
            kind = _EveryLength if holds_text else _LengthsOnDemand
            self._lengths = kind(lambda: token_decoder(tokenizer, skip_special_tokens=skip_special_tokens))

    def split(self, text: str, token_ids: Sequence[int]) -> Sequence[tuple[str, int]]:
        """(text, token id) for each token, in order; the last one gets what remains of `text`."""
        last = len(token_ids) - 1
        if self._lengths is None:
            return [("" if position < last else text, token_id) for position, token_id in enumerate(token_ids)]
        if last == 0:
            self._lengths.pass_by(text, token_ids[0])
            return ((text, token_ids[0]),)
        pieces = []
        start = 0
        for position, end in enumerate(self._lengths.ends(text, token_ids)):
            end = len(text) if position == last else max(start, min(end, len(text)))
            pieces.append((text[start:end], token_ids[position]))
            start = end
        return pieces


class _Lengths(Protocol):
    """Where the texts of a choice's tokens end."""

    def pass_by(self, text: str, token_id: int) -> None:
        """A delta of one token, which needs no cut."""

    def ends(self, text: str, token_ids: Sequence[int]) -> Iterator[int]:
        """The end of each token's text in `text`; it may lie outside where the engine holds text back."""


class _EveryLength:
    """Decodes every token: what the engine has said and what its tokens say are two counts."""

    def __init__(self, make_decoder: Callable[[], Decode]) -> None:
        self._decode = make_decoder()
        self._decoded = 0  # characters our decoder has given so far
        self._emitted = 0  # characters the engine has given so far

    def pass_by(self, text: str, token_id: int) -> None:
        self._decoded += len(self._decode(token_id))
        self._emitted += len(text)

    def ends(self, text: str, token_ids: Sequence[int]) -> Iterator[int]:
        for token_id in token_ids:
            self._decoded += len(self._decode(token_id))
            yield self._decoded - self._emitted
        self._emitted += len(text)


class _LengthsOnDemand:
    """Decodes merged deltas only, from where the engine's own decoder stands.

    An incremental decoder remembers no more than the tokens of the last text it gave and those after it, which have
    given none yet (the first bytes of a character). Those are kept; decoding each token would cost as much as parsing.
    """

    def __init__(self, make_decoder: Callable[[], Decode]) -> None:
        self._make_decoder = make_decoder
        self._said: list[int] = []
        self._unsaid: list[int] = []

    def pass_by(self, text: str, token_id: int) -> None:
        self._unsaid.append(token_id)
        if text:
            self._said, self._unsaid = self._unsaid, []

    def ends(self, text: str, token_ids: Sequence[int]) -> Iterator[int]:
        decode = self._make_decoder()
        for token_id in (*self._said, *self._unsaid):
            decode(token_id)
        end = 0
        for token_id in token_ids:
            piece = decode(token_id)
            self.pass_by(piece, token_id)
            end += len(piece)
            yield end
