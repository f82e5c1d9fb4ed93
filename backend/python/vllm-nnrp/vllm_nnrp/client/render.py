# SPDX-License-Identifier: MIT
"""An answer on the terminal, as it comes.

The answer itself (text, tool calls) goes to `out`; everything about it (reasoning, counts, errors, hints) to `err`.
On a terminal the two are one; with stdout in a pipe or a file only the answer gets there, as plain text.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Self, assert_never

from rich.console import Console, Group
from rich.highlighter import JSONHighlighter
from rich.live import Live
from rich.panel import Panel
from rich.text import Text as RichText

from vllm_nnrp.client.events import (
    USER_CANCELLED,
    Cancelled,
    ClientEvent,
    Done,
    Error,
    Reasoning,
    Text,
    ToolCallArguments,
    ToolCallDone,
    ToolCallError,
    ToolCallStart,
    Usage,
)
from vllm_nnrp.client.timing import Clock, StopWatch

REASONING_STYLE = "dim italic"
NOTE_STYLE = "dim"
ERROR_STYLE = "bold red"

# A model's text must not steer the terminal: control characters are shown, not sent.
_VISIBLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def printable(text: str) -> str:
    """`text` without control characters and lone surrogates."""
    return text.encode(errors="replace").decode().translate(_VISIBLE)


def pretty_json(text: str) -> str:
    """Indented if it is JSON, else as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


_highlight_json = JSONHighlighter()  # the terminal's own colours, so it can be read on any background


class Screen:
    """The two consoles, and whether the cursor stands at the start of a line."""

    def __init__(self, out: Console, err: Console) -> None:
        self.out = out
        self.err = err
        self._unfinished: Console | None = None

    @classmethod
    def standard(cls) -> Screen:
        """stdout and stderr. Highlighting is off: the words are the model's."""
        return cls(Console(highlight=False), Console(stderr=True, highlight=False))

    def stream(self, console: Console, text: str, style: str | None = None) -> None:
        """`text` at the cursor, at once."""
        if self._unfinished is not console:
            self.end_line()
        console.print(RichText(printable(text), style or ""), end="", soft_wrap=True)
        console.file.flush()
        self._unfinished = None if text.endswith("\n") else console

    def end_line(self) -> None:
        if self._unfinished is not None:
            self._unfinished.print()
            self._unfinished = None

    def note(self, text: str, style: str = NOTE_STYLE) -> None:
        """A line of ours."""
        self.end_line()
        self.err.print(RichText(printable(text), style), soft_wrap=True)

    def error(self, code: str, message: str) -> None:
        self.note(f"error {code}: {message}" if code else f"error: {message}", ERROR_STYLE)


class AnswerView:
    """Shows the events of one answer. `with` it: the terminal is left in order whatever happens."""

    def __init__(self, screen: Screen, clock: Clock) -> None:
        self._screen = screen
        self._watch = StopWatch(clock)
        self._section: type[Text] | type[Reasoning] | None = None
        self._boxes = _ToolBoxes(screen)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._boxes.abandon()
        self._screen.end_line()

    def show(self, event: ClientEvent) -> None:
        self._watch.feed(event)
        match event:
            case Text(text=text):
                self._stream(Text, text)
            case Reasoning(text=text):
                self._stream(Reasoning, text)
            case ToolCallStart() | ToolCallArguments() | ToolCallDone() | ToolCallError():
                self._section = None
                self._screen.end_line()
                self._boxes.show(event)
            case Usage():
                pass  # the stop watch has it; shown with the ending
            case Done(finish_reason=reason):
                self._end(reason)
            case Cancelled(reason=reason):
                self._end("cancelled" if reason == USER_CANCELLED else f"cancelled ({reason})")
            case Error(code=code, message=message):
                self._boxes.abandon()
                self._screen.error(code, message)
            case _:
                assert_never(event)

    def _stream(self, section: type[Text] | type[Reasoning], text: str) -> None:
        """Templates put line breaks between the parts of an answer; here the parts begin their own lines."""
        if self._section is not section:
            text = text.lstrip("\n")
            if not text:
                return
            self._screen.end_line()
            self._section = section
        if section is Reasoning:
            self._screen.stream(self._screen.err, text, REASONING_STYLE)
        else:
            self._screen.stream(self._screen.out, text)

    def _end(self, how: str) -> None:
        self._boxes.abandon()
        self._screen.note(f"{self._watch.summary()} · {how}")


class _Box:
    """One tool call on the screen."""

    def __init__(self, name: str, call_id: str) -> None:
        self.name = printable(name)
        self.call_id = printable(call_id)
        self.pieces: list[str] = []

    def panel(self, *, failure: str | None = None) -> Panel:
        body = _highlight_json(printable(pretty_json("".join(self.pieces))))
        title = RichText.assemble("tool call ", (self.name, "bold cyan"))
        if failure is None:
            return Panel(body, title=title, subtitle=self.call_id, title_align="left", subtitle_align="right")
        parts = Group(body, RichText(f"failed: {failure}", ERROR_STYLE))
        return Panel(parts, title=title, title_align="left", border_style="red")

    def plain(self, *, failure: str | None = None) -> str:
        """For a stdout that is no terminal."""
        arguments = printable(pretty_json("".join(self.pieces)))
        end = "" if failure is None else f"failed: {failure}"
        return "\n".join(line for line in (f"tool call {self.name} ({self.call_id})", arguments, end) if line)


class _ToolBoxes:
    """The calls that are not ended yet, redrawn while their arguments come; an ended call stays as it is."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._open: dict[int, _Box] = {}
        self._live: Live | None = None

    def show(self, event: ToolCallStart | ToolCallArguments | ToolCallDone | ToolCallError) -> None:
        match event:
            case ToolCallStart():
                self._open[event.index] = _Box(event.name, event.call_id)
                self._redraw()
            case ToolCallArguments():
                if box := self._open.get(event.index):
                    box.pieces.append(event.text)
                    self._redraw()
            case ToolCallDone():
                box = self._open.pop(event.index, None) or _Box(event.name, event.call_id)
                box.pieces = [event.arguments]
                self._end(box)
            case ToolCallError():
                if box := self._open.pop(event.index, None):
                    self._end(box, f"{event.message} ({event.code})")

    def abandon(self) -> None:
        """The answer is over: what is still open was not completed."""
        for index in tuple(self._open):
            self._end(self._open.pop(index), "not completed")

    def _redraw(self) -> None:
        if not self._screen.out.is_terminal:
            return
        if self._live is None:
            self._live = Live(console=self._screen.out, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Group(*(box.panel() for box in self._open.values())), refresh=True)

    def _end(self, box: _Box, failure: str | None = None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._screen.out.is_terminal:
            self._screen.out.print(box.panel(failure=None if failure is None else printable(failure)))
        else:
            self._screen.out.print(RichText(box.plain(failure=failure)), soft_wrap=True)
        if self._open:
            self._redraw()


def event_line(event: ClientEvent) -> str:
    """One event in one line, for those who want to see the stream itself."""
    match event:
        case Text(text=text):
            return f"text       {text!r}"
        case Reasoning(text=text):
            return f"reasoning  {text!r}"
        case ToolCallStart():
            return f"call       #{event.index} {event.name} ({event.call_id})"
        case ToolCallArguments():
            return f"arguments  #{event.index} {event.text!r}"
        case ToolCallDone():
            return f"call done  #{event.index} {event.name} {event.arguments}"
        case ToolCallError():
            return f"call error #{event.index} {event.code}: {event.message}"
        case Usage():
            return f"usage      prompt {event.prompt_tokens}, completion {event.completion_tokens}"
        case Done(finish_reason=reason):
            return f"done       {reason}"
        case Error(code=code, message=message):
            return f"error      {code}: {message}"
        case Cancelled(reason=reason):
            return f"cancelled  {reason}"
        case _:
            assert_never(event)
