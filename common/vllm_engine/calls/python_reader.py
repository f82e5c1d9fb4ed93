# SPDX-License-Identifier: MIT
"""Calls written as a Python list, `[get_weather(city="Paris"), get_time()]`; arguments come out as JSON, one by one."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection
from typing import Any

from vllm_engine.calls.sink import Sink, overlap

NAME = re.compile(r"\s*,?\s*([A-Za-z_][\w.]*)\(")
MAYBE_NAME = re.compile(r"\s*,?\s*([A-Za-z_][\w.]*)?\s*")
KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=(.*)", re.DOTALL)
CONSTANTS = {"true": True, "false": False, "null": None}


class PythonCalls:
    """A CallReader. The list must be the whole answer, or stand between `open_tag` and `close_tag`."""

    def __init__(self, sink: Sink, names: Collection[str], *, open_tag: str = "", close_tag: str = "") -> None:
        self._sink = sink
        self._names = names
        self._open_tag = open_tag
        self._close_tag = close_tag
        self._state = self._at_start
        self._tail = ""  # not yet understood
        self._argument = ArgumentScanner()
        self._arguments = 0

    def feed(self, text: str, token_id: int | None = None) -> None:
        text, self._tail = self._tail + text, ""
        while text:
            text = self._state(text)

    def _at_start(self, text: str) -> str:
        stripped = text.lstrip()
        if not stripped or (self._open_tag and self._open_tag.startswith(stripped)):
            self._tail = text
            return ""
        if self._open_tag and stripped.startswith(self._open_tag):
            return stripped[len(self._open_tag) :]
        if stripped[0] != "[":
            self._state = self._in_text
            return text
        matched = MAYBE_NAME.fullmatch(stripped, 1)
        if matched and self._may_be_name(matched[1] or ""):
            self._tail = text
            return ""
        name = NAME.match(stripped, 1)
        if name is None or name[1] not in self._names:
            self._state = self._in_text
            return text
        self._state = self._between
        return stripped[1:]

    def _may_be_name(self, begun: str) -> bool:
        return any(name.startswith(begun) for name in self._names)

    def _between(self, text: str) -> str:
        if matched := NAME.match(text):
            self._sink.start(matched[1])
            self._arguments = 0
            self._argument = ArgumentScanner()
            self._state = self._in_call
            return text[matched.end() :]
        if text.lstrip().startswith("]"):
            self._state = self._in_text
            return text.lstrip()[1:]
        if MAYBE_NAME.fullmatch(text):
            self._tail = text
            return ""
        self._state = self._in_text
        return text

    def _in_call(self, text: str) -> str:
        for position, character in enumerate(text):
            if not self._argument.takes(character):
                self._end_argument()
                if character == ")":
                    self._sink.arguments("}" if self._arguments else "{}")
                    self._sink.end()
                    self._state = self._between
                return text[position + 1 :]
        return ""

    def _end_argument(self) -> None:
        source, self._argument = self._argument.text, ArgumentScanner()
        matched = KEYWORD.fullmatch(source)
        if matched is None:
            return  # a trailing comma, or a positional argument that has no name
        value = json.dumps(evaluate(matched[2].strip()), ensure_ascii=False)
        self._sink.arguments(f"{', ' if self._arguments else '{'}{json.dumps(matched[1])}: {value}")
        self._arguments += 1

    def _in_text(self, text: str) -> str:
        if self._close_tag:
            text = text.replace(self._close_tag, "")
            keep = overlap(text, (self._close_tag,))
            self._tail = text[len(text) - keep :]
            text = text[: len(text) - keep]
        self._sink.text(text)
        return ""

    def finish(self, *, cut: bool) -> None:
        if self._state == self._in_call:
            self._sink.cut()
        elif not self._sink.calls:
            self._sink.text(self._tail)


class ArgumentScanner:
    """Collects one argument: up to a comma or closing parenthesis that is in no string and no bracket."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._closers: list[str] = []
        self._quote = ""
        self._escaped = False

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def takes(self, character: str) -> bool:
        if self._quote:
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = True
            elif character == self._quote:
                self._quote = ""
        elif character in "\"'":
            self._quote = character
        elif character in "([{":
            self._closers.append(character)
        elif character in ")]}" and self._closers:
            self._closers.pop()
        elif not self._closers and character in ",)":
            return False
        self._pieces.append(character)
        return True


def evaluate(source: str) -> Any:
    """The value of a Python (or JSON) literal; what is none is passed on as its text."""
    try:
        return json.loads(source)
    except ValueError:
        pass
    try:
        return ast.literal_eval(_Constants().visit(ast.parse(source, mode="eval")))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return source


class _Constants(ast.NodeTransformer):
    """true, false and null as JSON spells them."""

    def visit_Name(self, node: ast.Name) -> ast.expr:  # noqa: N802 - ast's name
        return ast.Constant(CONSTANTS[node.id]) if node.id in CONSTANTS else node
