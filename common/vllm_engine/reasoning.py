# SPDX-License-Identifier: MIT
"""The reasoning part of an answer, read by vLLM's own reasoning parser until it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """What one token gave; `token_ids` go on to the tool parser together with `content`."""

    reasoning: str = ""
    content: str = ""
    token_ids: tuple[int, ...] = ()


class NativeReasoning:
    """One choice's reasoning. `ended` at once where the prompt has closed it already."""

    def __init__(self, parser: Any, prompt_token_ids: Sequence[int]) -> None:
        self.parser = parser
        self._engine_based = bool(getattr(parser, "engine_based_streaming", False))
        self._text = ""
        self._token_ids: list[int] = []
        self.ended = bool(parser.is_reasoning_end(list(prompt_token_ids)))
        if not self.ended:
            parser.adjust_initial_state_from_prompt(prompt_token_ids)

    def feed(self, text: str, token_id: int | None) -> Part:
        ids = [] if token_id is None else [token_id]
        if self._engine_based:
            return self._engine_step(text, ids)
        previous, previous_ids = self._text, self._token_ids
        self._text, self._token_ids = previous + text, previous_ids + ids
        message = self.parser.extract_reasoning_streaming(
            previous, self._text, text, previous_ids, self._token_ids, ids
        )
        content = (message.content if message else None) or ""
        self.ended = bool(self.parser.is_reasoning_end_streaming(self._token_ids, ids))
        return Part((message.reasoning if message else None) or "", content, self._content_ids(ids))

    def _engine_step(self, text: str, ids: list[int]) -> Part:
        message = self.parser.extract_reasoning_streaming("", text, text, [], ids, ids)
        self.ended = self.parser.has_engine_confirmed_reasoning_end()
        held = self.parser.finish_streaming() if self.ended else None
        found = [part for part in (message, held) if part is not None]
        return Part(
            "".join(part.reasoning or "" for part in found),
            "".join(part.content or "" for part in found),
            self._content_ids(ids),
        )

    def _content_ids(self, ids: list[int]) -> tuple[int, ...]:
        return tuple(self.parser.extract_content_ids(ids)) if self.ended and ids else ()

    def finish(self) -> Part:
        held = self.parser.finish_streaming() if self._engine_based else None
        if held is None:
            return Part()
        return Part(held.reasoning or "", held.content or "")
