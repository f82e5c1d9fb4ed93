# SPDX-License-Identifier: MIT
"""Scans a value as it arrives, a character at a time, and never takes a brace inside a string for one outside."""

from __future__ import annotations

import json
from typing import Any

WHITE = " \t\r\n"
CLOSING = {"{": "}", "[": "]", "(": ")"}
LONGEST_ESCAPE = len(r"\ud83d\ude00")  # two halves of one character


class ValueScanner:
    """Finds the end of one JSON value, or of one list of Python calls, which is written with a few characters more.

    Feed it the value's first character first (no white space before it). Until it is done, its first `safe` characters
    and the `closers` behind them are a whole value, too: all of it but a key without its value, a number or word that
    may go on, and an escape that may not be complete. Strings that are no deeper than `whole_strings` containers do
    not count until they are whole.
    """

    def __init__(self, *, whole_strings: int = 0) -> None:
        self.done = False
        self.safe = 0
        self._whole_strings = whole_strings
        self._length = 0
        self._open: list[str] = []  # what closes the containers that are open, outermost first
        self._after_colon = False
        self._quote = ""  # of the string that is open
        self._cuttable = False  # that string may end anywhere
        self._escaped = False
        self._last_escape = 0  # where it began

    @property
    def depth(self) -> int:
        return len(self._open)

    @property
    def in_string(self) -> bool:
        return bool(self._quote)

    @property
    def closers(self) -> str:
        quote = self._quote if self._cuttable else ""
        return quote + "".join(reversed(self._open))

    def takes(self, character: str) -> bool:
        """Whether `character` belongs to the value; a container or string is done with its last one."""
        if self._quote:
            self._length += 1
            self._step_in_string(character)
            return True
        if not self._open and (character in "}]" or (self._length and (character == "," or character in WHITE))):
            self.done = True  # a number or word ends before what follows it
            return False
        self._length += 1
        self._step(character)
        return True

    def _step(self, character: str) -> None:
        if character in "\"'":
            self._quote = character
            self._cuttable = not self._at_key and self.depth > self._whole_strings
            if self._cuttable:
                self.safe = self._length
        elif character in CLOSING:
            self._open.append(CLOSING[character])
            self._after_colon = False
            self.safe = self._length
        elif character in "}])" and self._open:
            self._open.pop()
            self.safe = self._length
            self.done = not self._open
        elif character == ",":
            self._after_colon = False
            self.safe = self._length - 1
        elif character in ":=":
            self._after_colon = True

    @property
    def _at_key(self) -> bool:
        return bool(self._open) and self._open[-1] != "]" and not self._after_colon

    def _step_in_string(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
            self._last_escape = self._length
        elif character == self._quote:
            self._quote = ""
            self.done = not self._open
            if not self._at_key:
                self.safe = self._length
            return
        if self._cuttable and not 0 <= self._length - self._last_escape < LONGEST_ESCAPE - 1:
            self.safe = self._length


def belonging(scanner: ValueScanner, text: str) -> str:
    """What of `text` belongs to the value that `scanner` scans."""
    for position, character in enumerate(text):
        if scanner.done or not scanner.takes(character):
            return text[:position]
    return text


def on_one_line(character: str, *, in_string: bool) -> str:
    """The same value without line breaks and other control characters: escapes in a string, spaces elsewhere."""
    if character >= " ":
        return character
    return json.dumps(character)[1:-1] if in_string else " "


def decode(text: str) -> Any:
    """The JSON value, or None where it is not one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
