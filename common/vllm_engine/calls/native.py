# SPDX-License-Identifier: MIT
"""vLLM's own tool parsers as CallReaders: the engine-based ones of 0.26, and those that see all text so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vllm_engine.calls.fragments import Fragments
from vllm_engine.calls.sink import Sink

FREE = 2048  # characters of arguments up to which every token is passed on at once
SHARE = 64
MARKERS = ("tool_calls_start_token", "tool_call_start_token", "bot_token")  # attributes of native parsers


def waits(held: int, length: int) -> bool:
    """Whether `held` new characters wait, so that reading all of `length` again costs the same for each token."""
    return held * SHARE < length - FREE


class EngineCalls:
    """An engine-based parser: it takes the delta only and has to be finished.

    Those that turn markup into JSON read a call's arguments again with every delta. So where these have become long,
    plain text waits until it is a fixed share of them: the cost per token stays the same, the pieces get longer.
    """

    def __init__(self, sink: Sink, parser: Any, request: Any, *, may_call: bool = True) -> None:
        self._parser = parser
        self._request = request
        self._may_call = may_call
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
        if self._rereads and "<" not in text and waits(self._held_length, self._length):
            return
        self._pass_on()

    def _pass_on(self) -> None:
        text, ids = "".join(self._held), self._held_ids
        self._held, self._held_ids, self._held_length = [], [], 0
        message = self._parser.extract_tool_calls_streaming("", text, text, [], ids, ids, self._request)
        self._fragments.add(message, calls=self._may_call)
        in_arguments = self._parser._parser_engine._engine.state.name == "TOOL_ARGS"
        self._length = self._length + len(text) if in_arguments else 0

    def finish(self, *, cut: bool) -> None:
        if self._held:
            self._pass_on()
        in_call = self._parser._parser_engine._engine.state.name.startswith("TOOL_") and cut
        # finish_streaming() completes an open call: right where the model forgot the end tag, wrong where it was cut.
        self._fragments.add(self._parser.finish_streaming(), calls=self._may_call and not in_call)
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
        calls = whole_calls(self._fresh_parser(), self._text, self._request, lenient=cut)
        unsaid = self._text[self._said :]
        if not calls and not self._fragments.found and not (cut and opens_a_call(self._parser, unsaid)):
            self._sink.text(unsaid)
        for index, call in enumerate(calls):
            self._fragments.reach(index, call, call.function.arguments)
        if not calls and not cut and self._fragments.found:
            self._fragments.rest(self._parser.get_remaining_unstreamed_args())
        self._fragments.close(cut=cut)


def opens_a_call(parser: Any, text: str) -> bool:
    """Whether one of the markers that the parser says stands in `text`."""
    return any(getattr(parser, name, None) and getattr(parser, name) in text for name in MARKERS)


def whole_calls(parser: Any, text: str, request: Any, *, lenient: bool) -> Sequence[Any]:
    """The calls that the whole-text parse finds, perhaps none; `lenient` where `text` may be no whole answer."""
    try:
        whole = parser.extract_tool_calls(text, request)
    except Exception:
        if lenient:
            return ()  # a call that is not whole is often no JSON; that is no failure of the parser
        raise
    named = whole.tools_called and all(call.function.name for call in whole.tool_calls)
    return whole.tool_calls if named else ()
