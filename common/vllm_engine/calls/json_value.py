# SPDX-License-Identifier: MIT
"""Scans JSON as it arrives, a character at a time, and never takes a brace inside a string for one outside."""

from __future__ import annotations

import json
from typing import Any

WHITE = " \t\r\n"


class ValueScanner:
    """Finds the end of one JSON value. Feed it the value's first character first (no white space before it)."""

    def __init__(self) -> None:
        self.done = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._kind = ""  # the first character

    def takes(self, character: str) -> bool:
        """Whether `character` belongs to the value; a container or string is done with its last one."""
        if not self._kind:
            self._kind = character
        if self._in_string:
            self._step_in_string(character)
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            if not self._depth:
                return self._end_before()
            self._depth -= 1
            self.done = self._depth == 0
        elif not self._depth and (character == "," or character in WHITE):
            return self._end_before()
        return True

    def _step_in_string(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False
            self.done = self._depth == 0

    def _end_before(self) -> bool:
        self.done = True
        return False


def decode(text: str) -> Any:
    """The JSON value, or None where it is not one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
