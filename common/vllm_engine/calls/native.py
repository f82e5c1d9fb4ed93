# SPDX-License-Identifier: MIT
"""vLLM's own tool parsers as CallReaders: the engine-based ones of 0.26, and those that see all text so far."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from vllm_engine.calls.sink import Sink


class _Fragments:
    """Puts a native DeltaMessage into the sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._current: int | None = None
        self.arguments: list[str] = []  # of each call, as passed on

    def add(self, message: Any, *, calls: bool = True) -> None:
        if message is None:
            return
        self._sink.text(message.content or "")
        for call in (message.tool_calls or ()) if calls else ():
            function = call.function
            if call.index != self._current:
                if function is None or not function.name:
                    continue  # arguments of a call that was never named
                self._current = call.index
                self._sink.start(function.name, call.id)
                self.arguments.append("")
            if function is not None and function.arguments:
                self.rest(function.arguments)

    def rest(self, arguments: str) -> None:
        self._sink.arguments(arguments)
        self.arguments[-1] += arguments

    def close(self, *, cut: bool) -> None:
        if not self.arguments:
            return
        if _is_whole(self.arguments[-1]) or not (cut or self.arguments[-1]):
            self._sink.end()
        else:
            self._sink.cut()


def _is_whole(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


class EngineCalls:
    """An engine-based parser: it takes the delta only and has to be finished."""

    def __init__(self, sink: Sink, parser: Any, request: Any) -> None:
        self._parser = parser
        self._request = request
        self._fragments = _Fragments(sink)

    def feed(self, text: str, token_id: int | None) -> None:
        ids = [] if token_id is None else [token_id]
        message = self._parser.extract_tool_calls_streaming("", text, text, [], ids, ids, self._request)
        self._fragments.add(message)

    def finish(self, *, cut: bool) -> None:
        in_call = self._parser._parser_engine._engine.state.name.startswith("TOOL_") and cut
        # finish_streaming() completes an open call: right where the model forgot the end tag, wrong where it was cut.
        self._fragments.add(self._parser.finish_streaming(), calls=not in_call)
        self._fragments.close(cut=in_call)


class CumulativeCalls:
    """A parser that is given everything so far. At the end the whole-text parse says what it has missed."""

    def __init__(self, sink: Sink, parser: Any, fresh_parser: Callable[[], Any], request: Any) -> None:
        self._sink = sink
        self._parser = parser
        self._fresh_parser = fresh_parser
        self._request = request
        self._fragments = _Fragments(sink)
        self._text = ""
        self._token_ids: list[int] = []
        self._said = 0

    def feed(self, text: str, token_id: int | None) -> None:
        previous, previous_ids = self._text, self._token_ids
        ids = [] if token_id is None else [token_id]
        self._text, self._token_ids = previous + text, previous_ids + ids
        message = self._parser.extract_tool_calls_streaming(
            previous, self._text, text, previous_ids, self._token_ids, ids, self._request
        )
        if message is not None:
            self._said += len(message.content or "")
        self._fragments.add(message)

    def finish(self, *, cut: bool) -> None:
        whole = self._fresh_parser().extract_tool_calls(self._text, self._request)
        calls = whole.tool_calls if whole.tools_called else []
        if not calls and not self._fragments.arguments:
            self._sink.text(self._text[self._said :])
        for index, call in enumerate(calls):
            self._reconcile(index, call)
        if not calls and not cut and self._fragments.arguments:
            self._fragments.rest(self._parser.get_remaining_unstreamed_args())
        self._fragments.close(cut=cut)

    def _reconcile(self, index: int, call: Any) -> None:
        known = len(self._fragments.arguments)
        if index == known:
            self._sink.start(call.function.name, call.id)
            self._fragments.arguments.append("")
        elif index < known - 1:
            return  # ended already: what was streamed of it stands
        streamed = self._fragments.arguments[index]
        if call.function.arguments.startswith(streamed):
            self._fragments.rest(call.function.arguments[len(streamed) :])
