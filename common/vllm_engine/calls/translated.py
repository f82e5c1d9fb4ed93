# SPDX-License-Identifier: MIT
"""A family's markup in the words of another one, whose native parser reads it better."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_engine.calls.sink import CallReader


class Translated:
    """A CallReader before another one. Each of the `words` is a token, so none comes in pieces."""

    def __init__(self, reader: CallReader, words: Mapping[str, str]) -> None:
        self._reader = reader
        self._words = words

    def feed(self, text: str, token_id: int | None) -> None:
        word = self._words.get(text)
        if word is None:
            self._reader.feed(text, token_id)
        else:
            self._reader.feed(word, None)  # the token is not one of the other family

    def finish(self, *, cut: bool) -> None:
        self._reader.finish(cut=cut)
