# SPDX-License-Identifier: MIT
"""Streams calls by a whole-text parse.

A native parser whose streaming loses or garbles its family's calls reads them right in a whole text. So what has come
of them is completed to whole calls and given to that parse, and what completing them added is taken off the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto
from typing import Any

from vllm_engine.calls.bare_json import ARGUMENT_KEYS
from vllm_engine.calls.fragments import Fragments
from vllm_engine.calls.json_value import ValueScanner, decode, on_one_line
from vllm_engine.calls.native import waits
from vllm_engine.calls.sink import Sink

Parse = Callable[[str], Sequence[Any]]  # whole calls, as they are written → native ToolCalls
NO_VALUE = "<`"  # begins markers, and stands nowhere but in a string
AS_JSON = str.maketrans({")": "}", "'": '"'})


class Notation(Enum):
    """How a family writes its calls."""

    JSON = auto()  # an object with a name and arguments, or a list of these
    PYTHON = auto()  # a list of function calls with keyword arguments


class CompletedCalls:
    """One stretch of calls. It is over with its last bracket, or where a marker begins."""

    def __init__(self, sink: Sink, notation: Notation, parse: Parse, names: Collection[str], *, is_list: bool) -> None:
        self._parse = parse
        self._names = names
        self._call = 2 if is_list else 1  # how deep a call is
        self._arguments = self._call + 1 if notation is Notation.JSON else self._call
        self._value = ValueScanner(whole_strings=self._arguments - 1)
        self._fragments = Fragments(sink)
        self._pieces: list[str] = []  # of the calls, on one line
        self._length = 0
        self._read_length = 0
        self._whole = 0  # calls that have ended
        self._unread = False  # the last reading gave no further call: not again before something is whole
        self._written: list[str] = []
        self.over = False

    @property
    def found(self) -> bool:
        return self._fragments.found

    @property
    def text(self) -> str:
        """As the model wrote it."""
        return "".join(self._written)

    @property
    def _in_arguments(self) -> bool:
        return self._value.depth >= self._arguments

    def feed(self, text: str) -> int:
        """How many of the characters belong to it."""
        taken = 0
        for character in text:
            if character in NO_VALUE and not self._value.in_string:
                self.over = True
                break
            self._take(character)
            taken += 1
            if self._value.done:
                self.over = True
                break
        self._written.append(text[:taken])
        readable = self._in_arguments and not self._unread and not self.over
        if readable and not waits(self._length - self._read_length, self._length):
            self._read()
        return taken

    def _take(self, character: str) -> None:
        before = self._value.depth
        flat = on_one_line(character, in_string=self._value.in_string)
        self._pieces.append(flat)
        self._length += len(flat)
        for part in flat:
            self._value.takes(part)
        depth = self._value.depth
        if not self._value.done and depth < before and depth in (self._arguments - 1, self._call - 1):
            self._read()  # the arguments are whole, or the call

    def _completed(self) -> str:
        text = "".join(self._pieces)
        self._pieces = [text]
        return text if self._value.done else text[: self._value.safe] + self._value.closers

    def _read(self) -> None:
        self._read_length = self._length
        calls = self._parse(self._completed())
        self._unread = len(calls) == self._whole
        in_call = self._value.depth >= self._call
        added = self._added() if in_call else ""
        for index, call in enumerate(calls):
            arguments = call.function.arguments or ""
            if index < self._whole or not added:
                self._fragments.reach(index, call, arguments)
            elif arguments.endswith(added):
                self._fragments.reach(index, call, arguments[: -len(added)])
        if not in_call:
            self._whole = len(calls)

    def _added(self) -> str:
        """To the arguments of the last call, by completing it."""
        closers = self._value.closers
        return closers[: len(closers) - self._arguments + 1].translate(AS_JSON)

    def finish(self, *, cut: bool) -> None:
        readable = self._value.done or self._in_arguments
        if readable:
            self._read()
        if self._unread or not readable:
            self._read_names()
        self._fragments.close(cut=cut)

    def _read_names(self) -> None:
        """Native parsers take an object that has a name only for text, so it is given empty arguments."""
        value = decode(self._completed())
        calls = value if isinstance(value, list) else [value]
        if not all(isinstance(call, dict) and call.get("name") in self._names for call in calls):
            return
        bare = [not any(key in call for key in ARGUMENT_KEYS) for call in calls]
        for call in (call for call, is_bare in zip(calls, bare, strict=True) if is_bare):
            call[ARGUMENT_KEYS[0]] = {}
        for index, call in enumerate(self._parse(json.dumps(value))):
            may_go_on = bare[index] and index == len(bare) - 1 and not self._value.done
            self._fragments.reach(index, call, "" if may_go_on else call.function.arguments or "")
