# SPDX-License-Identifier: MIT
"""Where readers put what they find: the rules every family shares are kept here, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from chatdelta import ToolCallFragment


class Said(NamedTuple):
    """What one token brought, by the names of EngineDelta; a tuple, since two dataclasses a token cost too much."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallFragment, ...] = ()
    parser_failure: str | None = None


NOTHING = Said()


class Sink:
    """Text and calls of one choice, taken out once per token.

    Calls get dense indices and unique ids, a whole call always has arguments, calls beyond `max_calls` are dropped.
    With `may_call`, white space is held back until text follows: around calls it belongs to the markup.
    """

    def __init__(
        self, make_id: Callable[[str, int], str], *, max_calls: int | None = None, may_call: bool = True
    ) -> None:
        self._make_id = make_id
        self._max_calls = max_calls
        self._content: list[str] = []
        self._white = ""
        self._has_text = not may_call  # since the start or the last call
        self._fragments: list[ToolCallFragment] = []
        self._pieces: list[str] = []  # arguments of the open call, not yet in a fragment
        self._ids: set[str] = set()
        self._count = 0
        self._open = False
        self._has_arguments = False
        self._dropping = False

    @property
    def called(self) -> bool:
        """Whether calls were made and the last of them is whole."""
        return self._count > 0 and not self._open

    @property
    def calls(self) -> int:
        return self._count

    @property
    def open(self) -> bool:
        return self._open

    def text(self, text: str) -> None:
        if not text:
            return
        if not self._has_text and text.isspace():
            self._white += text
            return
        self._has_text = True
        self._content.append(self._white + text)
        self._white = ""

    def start(self, name: str, call_id: str | None = None) -> None:
        self.end()
        self._white, self._has_text = "", False
        self._dropping = self._max_calls is not None and self._count >= self._max_calls
        if self._dropping:
            return
        if call_id is None or call_id in self._ids:
            call_id = self._make_id(name, self._count)
        self._ids.add(call_id)
        self._flush_arguments()
        self._fragments.append(ToolCallFragment(self._count, id=call_id, name=name))
        self._count += 1
        self._open, self._has_arguments = True, False

    def arguments(self, text: str) -> None:
        if text and self._open:
            self._pieces.append(text)
            self._has_arguments = True

    def _flush_arguments(self) -> None:
        """One fragment for what one token brought, however many pieces it was."""
        if self._pieces:
            self._fragments.append(ToolCallFragment(self._count - 1, arguments="".join(self._pieces)))
            self._pieces.clear()

    def end(self) -> None:
        """The open call is whole."""
        if self._open and not self._has_arguments:
            self.arguments("{}")
        self._open = False

    def cut(self) -> None:
        """The answer ends inside the open call, if there is one: it must not look whole."""
        if self._open and not self._has_arguments:
            self.arguments("{")

    def finish(self) -> None:
        """White space alone is an answer only where nothing else was said."""
        if self._white and not self._count and not self._has_text:
            self._content.append(self._white)
        self._white = ""

    def take(self) -> Said:
        if self._pieces:
            self._flush_arguments()
        if not self._content and not self._fragments:
            return NOTHING
        said = Said("".join(self._content), "", tuple(self._fragments))
        self._content.clear()
        self._fragments.clear()
        return said


class CallReader(Protocol):
    """Reads one family's calls out of the content part of an answer; finds go to its sink."""

    def feed(self, text: str, token_id: int | None) -> None: ...

    def finish(self, *, cut: bool) -> None:
        """The answer is over; `cut` says by the token limit or a stop string, not by the model."""
