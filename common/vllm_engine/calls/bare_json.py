# SPDX-License-Identifier: MIT
"""The bare JSON that a constraint makes of tool_choice "required" and of a named function: no markup, no native parser.

Arguments are passed on as the model writes them. A brace inside a string is never taken for one outside.
"""

from __future__ import annotations

from collections.abc import Collection

from vllm_engine.calls.json_value import WHITE, ValueScanner, decode
from vllm_engine.calls.sink import Sink

ARGUMENT_KEYS = ("arguments", "parameters")
SEPARATORS = WHITE + "[],"


class ObjectScanner:
    """One `{"name": …, "parameters": {…}}`. Until its name is known nothing of it has been told to the sink."""

    def __init__(self, sink: Sink, names: Collection[str]) -> None:
        self._sink = sink
        self._names = names
        self.done = False
        self.name: str | None = None
        self._started = False
        self._key: str | None = None
        self._after_colon = False
        self._value: ValueScanner | None = None
        self._taken: list[str] = []  # of the value being scanned
        self._waiting: list[str] = []  # arguments that came before the name

    @property
    def is_call(self) -> bool:
        return self.name is not None

    def feed(self, character: str) -> None:
        if self._value is not None:
            if self._value.takes(character):
                self._take(character)
                if self._value.done:
                    self._end_value()
                return
            self._end_value()
        if character == "{" and not self._started:
            self._started = True
        elif character == "}":
            self._end_object()
        elif character == ":":
            self._after_colon = True
        elif character == ",":
            self._key, self._after_colon = None, False
        elif character not in WHITE:
            self._value = ValueScanner()
            self._value.takes(character)
            self._take(character)

    @property
    def _streams(self) -> bool:
        """Whether the value being scanned is an arguments object: passed on as it comes."""
        return self._after_colon and self._key in ARGUMENT_KEYS and bool(self._taken) and self._taken[0] == "{"

    def _take(self, character: str) -> None:
        self._taken.append(character)
        if self._streams:
            (self._sink.arguments if self.is_call else self._waiting.append)(character)

    def _end_value(self) -> None:
        streamed = self._streams
        value = None if streamed else decode("".join(self._taken))
        self._taken, self._value = [], None
        if not self._after_colon:
            self._key = value if isinstance(value, str) else None
        elif self._key == "name" and isinstance(value, str) and not self.is_call:
            self._start(value)

    def _start(self, name: str) -> None:
        if name not in self._names:
            return
        self.name = name
        self._sink.start(name)
        for piece in self._waiting:
            self._sink.arguments(piece)

    def _end_object(self) -> None:
        self.done = True
        if self.is_call:
            self._sink.end()


class RequiredCalls:
    """A CallReader for "required": a JSON list of call objects. What is no call of a known tool is text."""

    def __init__(self, sink: Sink, names: Collection[str]) -> None:
        self._sink = sink
        self._names = names
        self._object: ObjectScanner | None = None
        self._held: list[str] = []  # raw text since the last point where what it is was known
        self._plain = False

    def feed(self, text: str, token_id: int | None) -> None:
        for position, character in enumerate(text):
            if self._plain:
                self._sink.text(text[position:])
                return
            self._step(character)

    def _step(self, character: str) -> None:
        self._held.append(character)
        if self._object is None:
            if character == "{":
                self._object = ObjectScanner(self._sink, self._names)
            elif character not in SEPARATORS:
                self._give_up()
                return
            else:
                return
        self._object.feed(character)
        if self._object.is_call:
            self._held.clear()
        if self._object.done:
            if not self._object.is_call:
                self._give_up()
            self._object = None

    def _give_up(self) -> None:
        self._plain = True
        self._sink.text("".join(self._held))
        self._held.clear()

    def finish(self, *, cut: bool) -> None:
        if self._object is not None and self._object.is_call:
            self._sink.cut()
        elif not self._sink.calls and not cut:
            self._sink.text("".join(self._held))


class NamedArguments:
    """A CallReader for a named function: the content is its arguments."""

    def __init__(self, sink: Sink, name: str) -> None:
        self._sink = sink
        self._name = name
        self._value: ValueScanner | None = None

    def feed(self, text: str, token_id: int | None) -> None:
        for character in text:
            if self._value is None:
                if character in WHITE:
                    continue
                self._value = ValueScanner()
                self._sink.start(self._name)
            if not self._value.done and self._value.takes(character):
                self._sink.arguments(character)
                if self._value.done:
                    self._sink.end()

    def finish(self, *, cut: bool) -> None:
        if self._value is not None and not self._value.done:
            self._sink.cut()
