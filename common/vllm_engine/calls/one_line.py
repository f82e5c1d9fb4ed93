# SPDX-License-Identifier: MIT
"""A call's JSON on one line, for native parsers that stop at a line break."""

from __future__ import annotations

from vllm_engine.calls.json_value import ValueScanner, on_one_line
from vllm_engine.calls.sink import CallReader


class OneLineJson:
    """A CallReader before another one. What stands before the first `marker` is left alone."""

    def __init__(self, reader: CallReader, marker: str) -> None:
        self._reader = reader
        self._marker = marker  # one token
        self._called = False
        self._value: ValueScanner | None = None

    def feed(self, text: str, token_id: int | None) -> None:
        self._called = self._called or self._marker in text
        if self._called:
            text = "".join(map(self._flat, text))
        self._reader.feed(text, token_id)

    def _flat(self, character: str) -> str:
        if self._value is None:
            if character != "{":
                return character
            self._value = ValueScanner()
        flat = on_one_line(character, in_string=self._value.in_string)
        for part in flat:
            self._value.takes(part)
        if self._value.done:
            self._value = None
        return flat

    def finish(self, *, cut: bool) -> None:
        self._reader.finish(cut=cut)
