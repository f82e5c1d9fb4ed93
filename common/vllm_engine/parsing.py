# SPDX-License-Identifier: MIT
"""One choice's native parsers, fed one token at a time, and what happens when one of them raises."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from chatdelta import EngineDelta, ToolCallFragment

log = logging.getLogger(__name__)


class PlainText:
    """No parser: every text is content."""

    in_reasoning = False
    called_tools = False

    def feed(self, text: str, token_id: int | None, *, finished: bool) -> EngineDelta:
        return EngineDelta(content=text)


class NativeParser:
    """vLLM's unified parser (0.26: `parse_delta`) for one choice."""

    def __init__(self, parser: Any, request: Any, prompt_token_ids: Sequence[int], request_id: str) -> None:
        self._parser = parser
        self._request = request
        self._prompt_token_ids = list(prompt_token_ids)
        self._request_id = request_id
        self._indices: dict[int, int] = {}  # the parser's tool index → ours, dense from 0
        self._failed = False

    @property
    def reasoning_parser(self) -> Any:
        return self._parser.reasoning_parser

    @property
    def in_reasoning(self) -> bool:
        if self._failed or self._parser.reasoning_parser is None:
            return False
        return not self._parser._stream_state.reasoning_ended

    @property
    def called_tools(self) -> bool:
        return bool(self._indices)

    def feed(self, text: str, token_id: int | None, *, finished: bool) -> EngineDelta:
        if self._failed:
            return EngineDelta(content=text)
        try:
            message = self._parser.parse_delta(
                text,
                [] if token_id is None else [token_id],
                self._request,
                self._prompt_token_ids,
                finished=finished,
            )
        except Exception as exc:
            # A parser is third-party code on model output: whatever it raises, the answer goes on as plain text.
            log.exception("native parser failed", extra={"request_id": self._request_id})
            self._failed = True
            return EngineDelta(content=text, parser_failure=type(exc).__name__)
        if message is None:
            return EngineDelta()
        return EngineDelta(
            content=message.content or "",
            reasoning=message.reasoning or "",
            tool_calls=self._fragments(message.tool_calls),
        )

    def _fragments(self, calls: Sequence[Any]) -> tuple[ToolCallFragment, ...]:
        fragments = []
        for call in calls:
            known = call.index in self._indices
            if not known and call.index > 0 and self._request.parallel_tool_calls is False:
                continue  # the client wants one call at most
            index = self._indices.setdefault(call.index, len(self._indices))
            function = call.function
            fragments.append(
                ToolCallFragment(
                    index,
                    id=None if known else call.id or _new_call_id(),
                    name=None if known or function is None else function.name,
                    arguments=(function.arguments if function else None) or "",
                )
            )
        return tuple(fragments)


def _new_call_id() -> str:
    from vllm.entrypoints.chat_utils import make_tool_call_id

    return str(make_tool_call_id())
