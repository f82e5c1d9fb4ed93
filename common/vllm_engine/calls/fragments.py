# SPDX-License-Identifier: MIT
"""What native parsers find, on its way into the sink; the rules their arguments keep are kept here, once."""

from __future__ import annotations

import re
from typing import Any

from chatdelta.toolcalls import is_json_object
from vllm_engine.calls.json_value import ValueScanner, belonging
from vllm_engine.calls.sink import Sink

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Fragments:
    """Puts native calls into the sink. A call's arguments are one JSON value: what follows it is no part of them."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._current: int | None = None
        self._value = ValueScanner()  # the open call's arguments
        self.arguments: list[str] = []  # of each call, as passed on

    @property
    def found(self) -> bool:
        return bool(self.arguments)

    def add(self, message: Any, *, calls: bool = True) -> None:
        """A native DeltaMessage, or None."""
        if message is None:
            return
        self._sink.text(message.content or "")
        for call in (message.tool_calls or ()) if calls else ():
            function = call.function
            if call.index != self._current:
                if function is None or not function.name:
                    continue  # arguments of a call that was never named
                self._current = call.index
                self._start(function.name, call.id)
            if function is not None:
                self.rest(function.arguments or "")

    def reach(self, index: int, call: Any, arguments: str) -> None:
        """Call number `index` of a native whole-text parse, as far as `arguments`; what of it was passed on stands."""
        known = len(self.arguments)
        if index == known:
            self._start(call.function.name, call.id)
        elif index < known - 1:
            return  # ended already
        if arguments.startswith(self.arguments[-1]):
            self.rest(arguments[len(self.arguments[-1]) :])

    def _start(self, name: str, call_id: str | None) -> None:
        self._sink.start(name, call_id)
        self._value = ValueScanner()
        self.arguments.append("")

    def rest(self, arguments: str) -> None:
        """More arguments of the call that is open."""
        if not self.arguments[-1]:
            arguments = arguments.lstrip()
        arguments = belonging(self._value, arguments)
        if not arguments:
            return
        self.arguments[-1] += arguments
        if not arguments.isascii():  # a half of a surrogate pair has no UTF-8 form, but an escape
            arguments = LONE_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", arguments)
        self._sink.arguments(arguments)

    def close(self, *, cut: bool) -> None:
        """The last call ends here, and is whole if its arguments are; `cut` says that the model would have gone on."""
        if not self.found:
            return
        if is_json_object(self.arguments[-1]) or not (cut or self.arguments[-1]):
            self._sink.end()
        else:
            self._sink.cut()
