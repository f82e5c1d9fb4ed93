# SPDX-License-Identifier: MIT
"""Calls between markers. What stands around them is text, and is said as it comes."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from vllm_engine.calls.completed_calls import CompletedCalls, Notation, Parse
from vllm_engine.calls.json_value import WHITE
from vllm_engine.calls.sink import Sink
from vllm_engine.partial import held_back

# What calls begin with, and what may still become that.
BEGINNINGS = {
    Notation.JSON: (re.compile(r'\{\s*["}]|\[\s*[{\]]'), re.compile(r"[\[{]?\s*")),
    Notation.PYTHON: (re.compile(r"\[\s*[\w.]+\s*\("), re.compile(r"\[?\s*[\w.]*\s*")),
}


@dataclass(frozen=True, slots=True)
class Markers:
    """What stands around a family's calls. `begin` has the longer of two markers first, if one begins the other.

    `ignored` stands in the text and is not said. `only_calls` says that the markers mean nothing else: then what was
    cut in a call that has no name yet is no text. An answer that begins with `bare`, and what follows a call, needs no
    marker.
    """

    begin: tuple[str, ...]
    end: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    only_calls: bool = True
    bare: str = ""
    notation: Notation = Notation.JSON

    @property
    def in_text(self) -> tuple[str, ...]:
        return self.begin + self.ignored


class Segments:
    """A CallReader for such a family."""

    def __init__(self, sink: Sink, markers: Markers, parse: Parse, names: Collection[str]) -> None:
        self._sink = sink
        self._markers = markers
        self._parse = parse
        self._names = names
        self._in_text = markers.in_text
        self._first_letters = tuple({marker[0] for marker in self._in_text})
        self._held = ""
        self._at_start = bool(markers.bare)
        self._opening = ""  # what stands before the calls that are being read
        self._calls: CompletedCalls | None = None
        self._after_calls = False

    def feed(self, text: str, token_id: int | None) -> None:
        self._held += text
        goes_on = True
        while self._held and goes_on:
            if self._calls is not None:
                goes_on = self._inside(self._calls)
            elif self._after_calls:
                goes_on = self._behind()
            elif self._at_start:
                goes_on = self._first()
            else:
                goes_on = self._outside()

    def _first(self) -> bool:
        inner = self._held.lstrip(WHITE)
        if not inner:
            return False
        begins = inner[0] == self._markers.bare and self._begins_calls(inner)
        if begins is None:
            return False
        self._at_start = False
        if begins:
            self._open("", inner)
        return True

    def _outside(self) -> bool:
        held = self._held
        for letter in self._first_letters:
            if letter in held:
                break
        else:  # nearly always, and this runs once per token
            self._say(len(held))
            return False
        found = [(at, marker) for marker in self._in_text if (at := held.find(marker)) >= 0]
        if not found:
            self._say(len(held) - held_back(held, self._in_text))
            return False
        at, marker = min(found, key=lambda pair: pair[0])
        self._say(at)
        if marker in self._markers.ignored:
            self._held = self._held.removeprefix(marker)
            return True
        if any(longer != self._held and longer.startswith(self._held) for longer in self._markers.begin):
            return False
        inner = self._held[len(marker) :].lstrip(WHITE)
        begins = self._begins_calls(inner)
        if begins is None:
            return False
        if begins:
            self._open(self._held[: len(self._held) - len(inner)], inner)
        else:
            self._say(len(marker))  # a word of the text
        return True

    def _say(self, length: int) -> None:
        self._sink.text(self._held[:length])
        self._held = self._held[length:]

    def _open(self, opening: str, inner: str) -> None:
        self._opening, self._held = opening, inner
        notation, is_list = self._markers.notation, inner[0] == "["
        self._calls = CompletedCalls(self._sink, notation, self._parse, self._names, is_list=is_list)

    def _inside(self, reader: CompletedCalls) -> bool:
        self._held = self._held[reader.feed(self._held) :]
        if reader.over:
            self._close(reader, cut=False)
        return reader.over

    def _close(self, reader: CompletedCalls, *, cut: bool) -> None:
        reader.finish(cut=cut)
        self._calls = None
        if reader.found:
            self._after_calls = bool(self._markers.end)
            self._at_start = bool(self._markers.bare)
        elif not (cut and self._markers.only_calls and self._opening):
            self._sink.text(self._opening + reader.text)

    def _behind(self) -> bool:
        """White space and brackets too many, and then the end marker, belong to the call."""
        rest = self._held.lstrip(WHITE + "}]")
        ended = next((end for end in self._markers.end if rest.startswith(end)), "")
        if not ended and any(end.startswith(rest) for end in self._markers.end):
            return False
        self._held = rest[len(ended) :]
        self._after_calls = False
        return True

    def finish(self, *, cut: bool) -> None:
        if self._calls is not None:
            self._close(self._calls, cut=cut)
        elif not self._after_calls and not (cut and self._markers.only_calls and self._is_opened()):
            self._sink.text(self._held)

    def _is_opened(self) -> bool:
        return self._held.startswith(self._markers.begin)

    def _begins_calls(self, text: str) -> bool | None:
        """Whether calls begin like that; None where there is too little of it."""
        beginning, may_become = BEGINNINGS[self._markers.notation]
        if beginning.match(text):
            return True
        return None if may_become.fullmatch(text) else False
