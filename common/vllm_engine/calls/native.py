# SPDX-License-Identifier: MIT
"""vLLM's own tool parsers as CallReaders: the engine-based ones of 0.26, and those that see all text so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chatdelta.toolcalls import is_json_object
from vllm_engine.calls.sink import Sink


class Fragments:
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
        if is_json_object(self.arguments[-1]) or not (cut or self.arguments[-1]):
            self._sink.end()
        else:
            self._sink.cut()


FREE = 2048  # characters of arguments up to which every token is passed on at once
SHARE = 64


class EngineCalls:
    """An engine-based parser: it takes the delta only and has to be finished.

    Those that turn markup into JSON read a call's arguments again with every delta. So where these have become long,
    plain text waits until it is a fixed share of them: the cost per token stays the same, the pieces get longer.
    """

    def __init__(self, sink: Sink, parser: Any, request: Any) -> None:
        self._parser = parser
        self._request = request
        self._fragments = Fragments(sink)
        self._rereads = not parser._parser_engine.parser_engine_config.tool_args_json
        self._length = 0  # of the arguments so far, about
        self._held: list[str] = []
        self._held_ids: list[int] = []
        self._held_length = 0

    def feed(self, text: str, token_id: int | None) -> None:
        self._held.append(text)
        self._held_length += len(text)
        if token_id is not None:
            self._held_ids.append(token_id)
        if self._rereads and "<" not in text and self._held_length * SHARE < self._length - FREE:
            return
        self._pass_on()

    def _pass_on(self) -> None:
        text, ids = "".join(self._held), self._held_ids
        self._held, self._held_ids, self._held_length = [], [], 0
        message = self._parser.extract_tool_calls_streaming("", text, text, [], ids, ids, self._request)
        self._fragments.add(message)
        in_arguments = self._parser._parser_engine._engine.state.name == "TOOL_ARGS"
        self._length = self._length + len(text) if in_arguments else 0

    def finish(self, *, cut: bool) -> None:
        if self._held:
            self._pass_on()
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
        self._fragments = Fragments(sink)
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
        whole = extract_whole(self._fresh_parser(), self._text, self._request, cut=cut)
        calls: Sequence[Any] = whole.tool_calls if whole else ()
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


class WholeTextCalls:
    """A parser whose streaming was measured to be wrong even on single tokens: its whole-text parse, at the end.

    Nothing of the content is said before. That is the price of an exact answer from these families while tools are
    offered; without tools no parser is asked and text streams as ever.
    """

    def __init__(self, sink: Sink, parser: Any, request: Any) -> None:
        self._sink = sink
        self._parser = parser
        self._request = request
        self._pieces: list[str] = []

    def feed(self, text: str, token_id: int | None) -> None:
        self._pieces.append(text)

    def finish(self, *, cut: bool) -> None:
        text, self._pieces = "".join(self._pieces), []
        whole = extract_whole(self._parser, text, self._request, cut=cut)
        if whole is None:
            self._sink.text(text)
            return
        self._sink.text(whole.content or "")
        for call in whole.tool_calls:
            self._sink.start(call.function.name, call.id)
            self._sink.arguments(call.function.arguments)
            self._sink.end()


def extract_whole(parser: Any, text: str, request: Any, *, cut: bool) -> Any:
    """The whole-text parse, or None where it finds no call."""
    try:
        whole = parser.extract_tool_calls(text, request)
    except Exception:
        if cut:
            return None  # what was cut is often no JSON; that is no failure of the parser
        raise
    return whole if whole.tools_called and whole.tool_calls else None
