# SPDX-License-Identifier: MIT
"""Calls between markers: MARKER header {arguments as JSON} MARKER. The header holds the name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vllm_engine.calls.json_value import WHITE, ValueScanner
from vllm_engine.calls.sink import Sink, find_first, overlap


@dataclass(frozen=True, slots=True)
class MarkedFormat:
    call: str  # starts a call
    name: Callable[[str], str]  # out of the header
    call_end: str = ""
    begin: str = ""  # around all calls
    end: str = ""


BEGIN, END, CALL, SEP, CALL_END = (
    f"<｜{words.replace(' ', '▁')}｜>"
    for words in ("tool calls begin", "tool calls end", "tool call begin", "tool sep", "tool call end")
)
DEEPSEEK_V3 = MarkedFormat(
    CALL, lambda header: header.partition(SEP)[2].strip().removesuffix("```json").strip(), CALL_END, BEGIN, END
)
DEEPSEEK_V31 = MarkedFormat(CALL, lambda header: header.partition(SEP)[0].strip(), CALL_END, BEGIN, END)
MISTRAL_V11 = MarkedFormat("[TOOL_CALLS]", lambda header: header.partition("[")[0].strip())


class MarkedCalls:
    """A CallReader for every `MarkedFormat`."""

    def __init__(self, sink: Sink, form: MarkedFormat) -> None:
        self._sink = sink
        self._form = form
        self._markers = tuple(marker for marker in (form.call, form.call_end, form.begin, form.end) if marker)
        self._tail = ""
        self._header: list[str] | None = None  # while reading one
        self._value: ValueScanner | None = None

    def feed(self, text: str, token_id: int | None = None) -> None:
        text, self._tail = self._tail + text, ""
        while text:
            text = self._in_value(self._value, text) if self._value is not None else self._outside(text)

    def _in_value(self, value: ValueScanner, text: str) -> str:
        for position, character in enumerate(text):
            if not value.takes(character) or value.done:
                end = position + 1
                break
        else:
            end = len(text)
        self._sink.arguments(text[:end])
        if value.done:
            self._sink.end()
            self._value = None
        return text[end:]

    def _outside(self, text: str) -> str:
        position, marker = find_first(text, self._markers)
        brace = text.find("{") if self._header is not None else -1
        if brace >= 0 and (position < 0 or brace < position):
            self._add(text[:brace])
            self._start()
            self._value = ValueScanner()
            return text[brace:]
        if position >= 0:
            self._add(text[:position])
            self._on(marker)
            return text[position + len(marker) :]
        keep = overlap(text, self._markers)
        self._add(text[: len(text) - keep])
        self._tail = text[len(text) - keep :]
        return ""

    def _add(self, text: str) -> None:
        if self._header is not None:
            self._header.append(text)
        elif not (self._sink.calls and not text.strip(WHITE + "`")):
            self._sink.text(text)

    def _on(self, marker: str) -> None:
        if marker == self._form.call:
            self._header = []
        elif marker == self._form.call_end and self._header is not None:
            self._start()  # a call without arguments
            self._sink.end()

    def _start(self) -> None:
        header, self._header = "".join(self._header or ()), None
        if name := self._form.name(header):
            self._sink.start(name)

    def finish(self, *, cut: bool) -> None:
        if self._value is not None:
            self._sink.cut()
        elif self._header is None:
            self._sink.text(self._tail)
        elif not cut:
            self._start()
            self._sink.end()
