# SPDX-License-Identifier: MIT
"""Calls that are JSON objects, `{"name": …, "arguments": {…}}`, between a family's openers and closers.

Arguments are passed on as the model wrote them, while it writes them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from vllm_engine.calls.json_value import WHITE, ValueScanner, decode
from vllm_engine.calls.sink import Sink, find_first, overlap

ARGUMENT_KEYS = ("arguments", "parameters")


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """`opens` start calls anywhere, `bare` characters only as the first of the answer; `closes` end them."""

    opens: tuple[str, ...] = ()
    bare: str = ""
    closes: tuple[str, ...] = ()
    known_names_only: bool = False  # where the markup does not set calls apart from JSON that is an answer


HERMES = JsonFormat(opens=("<tool_call>",), closes=("</tool_call>",))
LLAMA = JsonFormat(opens=("<|python_tag|>",), bare="{", known_names_only=True)
PHI4 = JsonFormat(opens=("functools[",), closes=("]",))
XLAM = JsonFormat(
    opens=("```json", "```", "[TOOL_CALLS]", "<tool_call>"),
    bare="[",
    closes=("```", "</tool_call>"),
    known_names_only=True,
)
MISTRAL = JsonFormat(opens=("[TOOL_CALLS]",))
REQUIRED = JsonFormat(bare="[{", known_names_only=True)


class ObjectScanner:
    """One call object. Until its name is known nothing of it has been told to the sink."""

    def __init__(self, sink: Sink, names: Collection[str] | None) -> None:
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
        elif self._key in ARGUMENT_KEYS and isinstance(value, str) and isinstance(decode(value), dict):
            (self._sink.arguments if self.is_call else self._waiting.append)(value)

    def _start(self, name: str) -> None:
        if self._names is not None and name not in self._names:
            return
        self.name = name
        self._sink.start(name)
        for piece in self._waiting:
            self._sink.arguments(piece)

    def _end_object(self) -> None:
        self.done = True
        if self.is_call:
            self._sink.end()


class JsonCalls:
    """A CallReader for every `JsonFormat`."""

    def __init__(self, sink: Sink, form: JsonFormat, names: Collection[str]) -> None:
        self._sink = sink
        self._form = form
        self._names = names if form.known_names_only else None
        self._at_start = True
        self._in_calls = False
        self._found = False  # a call, since the section opened
        self._object: ObjectScanner | None = None
        self._tail = ""  # text that may be the beginning of an opener or a closer
        self._held: list[str] = []  # raw text since the last point where what it is was known

    def feed(self, text: str, token_id: int | None = None) -> None:
        text, self._tail = self._tail + text, ""
        while text:
            text = self._step(text)

    def _step(self, text: str) -> str:
        """Consume some of `text`; what is left."""
        if self._object is not None:
            return self._in_object(self._object, text)
        if self._in_calls:
            return self._between(text)
        return self._in_text(text)

    def _in_text(self, text: str) -> str:
        if self._at_start and self._form.bare:
            stripped = text.lstrip()
            if not stripped:
                self._tail = text
                return ""
            if stripped[0] in self._form.bare:
                self._at_start, self._in_calls, self._found = False, True, False
                return text
        position, opener = find_first(text, self._form.opens)
        if position >= 0 and not self._may_grow(text, position, opener):
            self._sink.text(text[:position])
            self._at_start, self._in_calls, self._found = False, True, False
            self._held = [opener]
            return text[position + len(opener) :]
        keep = len(text) - position if position >= 0 else overlap(text, self._form.opens)
        said = text[: len(text) - keep]
        self._tail = text[len(said) :]
        self._sink.text(said)
        self._at_start = self._at_start and not said.strip()
        return ""

    def _may_grow(self, text: str, position: int, opener: str) -> bool:
        """Whether the opener found may still become a longer one (``` and ```json)."""
        rest = text[position:]
        return any(other != opener and other.startswith(rest) for other in self._form.opens if len(other) > len(rest))

    def _between(self, text: str) -> str:
        """Between two call objects, or before the first."""
        for closer in self._form.closes:
            if text.startswith(closer):
                self._in_calls, self._held = False, []
                return text[len(closer) :]
            if closer.startswith(text):
                self._tail = text
                return ""
        character = text[0]
        if character in "{":
            self._object = ObjectScanner(self._sink, self._names)
            return text
        if character in WHITE or character in "[];," or (self._found and character == "}"):
            self._held.append(character)
            return text[1:]
        self._give_up()
        return text

    def _in_object(self, scanner: ObjectScanner, text: str) -> str:
        for position, character in enumerate(text):
            self._held.append(character)
            scanner.feed(character)
            if scanner.is_call:
                self._held.clear()
                self._found = True
            if scanner.done:
                self._object = None
                if not scanner.is_call:
                    self._give_up()
                return text[position + 1 :]
        return ""

    def _give_up(self) -> None:
        """What was held is no call: it is text, and so is what follows, until the next opener."""
        held, self._held = "".join(self._held), []
        if self._found and not held.strip(WHITE + "[];,}"):
            held = ""
        self._in_calls, self._object = False, None
        self._sink.text(held)

    def finish(self, *, cut: bool) -> None:
        if self._object is not None and self._object.is_call:
            self._sink.cut()
            return
        held = "".join(self._held) + self._tail
        if self._in_calls and (self._found or (cut and held.startswith(("<", "[TOOL")))) and not (
            self._object is not None and not held.startswith(("<", "[TOOL")) and not self._found
        ):
            return  # only separators, or markup that was cut before it said which call
        self._sink.text(held)
