# SPDX-License-Identifier: MIT
"""vLLM's own tool parsers as CallReaders: the engine-based ones of 0.26, and those that see all text so far."""

from __future__ import annotations

import json
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
    """A parser that is given everything so far. At the end the whole-text parse says what it has missed.

    `ends` are what calls begin and end with, for a parser that completes a call which was cut, or that loses the text
    behind the last one. Without `is_typed` arguments are those of the whole-text parse, at the end of each call.
    """

    def __init__(
        self,
        sink: Sink,
        parser: Any,
        fresh_parser: Callable[[], Any],
        request: Any,
        *,
        ends: tuple[str, str] | None = None,
        is_typed: bool = True,
    ) -> None:
        self._sink = sink
        self._parser = parser
        self._fresh_parser = fresh_parser
        self._request = request
        self._fragments = Fragments(sink)
        self._text = ""
        self._token_ids: list[int] = []
        self._ends = ends
        self._is_typed = is_typed
        self._said = 0
        self._said_last = False  # text, and no call since

    def feed(self, text: str, token_id: int | None) -> None:
        previous, previous_ids = self._text, self._token_ids
        ids = [] if token_id is None else [token_id]
        self._text, self._token_ids = previous + text, previous_ids + ids
        message = self._parser.extract_tool_calls_streaming(
            previous, self._text, text, previous_ids, self._token_ids, ids, self._request
        )
        if message is not None:
            self._said += len(message.content or "")
            self._said_last = not message.tool_calls and (self._said_last or bool((message.content or "").strip()))
        if not self._is_typed and message is not None:
            for call in message.tool_calls:
                if call.function is not None:
                    call.function.arguments = ""
        self._fragments.add(message)
        if not self._is_typed and self._ends is not None and self._ends[1] in text:
            self._reach(whole_calls(self._fresh_parser(), self._text, self._request, lenient=True))

    def _reach(self, calls: Sequence[Any]) -> None:
        for index, call in enumerate(calls):
            self._fragments.reach(index, call, call.function.arguments)

    def finish(self, *, cut: bool) -> None:
        calls = whole_calls(self._fresh_parser(), self._text, self._request, lenient=cut)
        if cut and self._in_call():
            calls = calls[: max(0, len(self._fragments.arguments) - 1)]
        unsaid = self._text[self._said :]
        if not calls and not self._fragments.found and not (cut and opens_a_call(self._parser, unsaid)):
            self._sink.text(unsaid)
        self._reach(calls)
        if not calls and not cut and self._fragments.found:
            self._fragments.rest(unstreamed(self._parser))
        self._fragments.close(cut=cut)
        if self._ends is not None and self._fragments.found and not self._said_last:
            self._sink.text(self._text.rpartition(self._ends[1])[2] if not self._in_call() else "")

    def _in_call(self) -> bool:
        return self._ends is not None and self._text.rfind(self._ends[0]) > self._text.rfind(self._ends[1])


def unstreamed(parser: Any) -> str:
    """The arguments of the last call that the parser knows of and has not said; from 0.26 vLLM's parsers tell."""
    if tell := getattr(parser, "get_remaining_unstreamed_args", None):
        return str(tell())
    if not parser.prev_tool_call_arr:
        return ""
    last = len(parser.prev_tool_call_arr) - 1
    known = parser.prev_tool_call_arr[last].get("arguments", {})
    text = known if isinstance(known, str) else json.dumps(known, ensure_ascii=False)
    said: str = parser.streamed_args_for_tool[last] if last < len(parser.streamed_args_for_tool) else ""
    return text[len(said) :] if text.startswith(said) else ""


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
