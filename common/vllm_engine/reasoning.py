# SPDX-License-Identifier: MIT
"""The reasoning part of an answer, read by vLLM's own reasoning parser until it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from vllm_engine.partial import held_back

PHRASES = ("valid_think_starts", "valid_response_starts")  # attributes: what begins a part, where no token does


class Part(NamedTuple):
    """What one token gave; `token_ids` go on to the tool parser together with `content`."""

    reasoning: str = ""
    content: str = ""
    token_ids: tuple[int, ...] = ()


class ReasoningReader(Protocol):
    """Reads the reasoning out of one choice's answer."""

    ended: bool  # what follows is content, and need not come here

    def feed(self, text: str, token_id: int | None) -> Part: ...

    def finish(self) -> Part: ...


class NativeReasoning:
    """One choice's reasoning. `ended` at once where the prompt has closed it already."""

    def __init__(self, parser: Any, prompt_token_ids: Sequence[int]) -> None:
        self.parser = parser
        self._engine_based = bool(getattr(parser, "engine_based_streaming", False))
        self._phrases = tuple(phrase for name in PHRASES for phrase in getattr(parser, name, ()))
        self._text = ""
        self._held = ""
        self._token_ids: list[int] = []
        self.ended = bool(parser.is_reasoning_end(list(prompt_token_ids)))
        if not self.ended and (adjust := getattr(parser, "adjust_initial_state_from_prompt", None)):  # from 0.26
            adjust(prompt_token_ids)

    def feed(self, text: str, token_id: int | None) -> Part:
        ids = [] if token_id is None else [token_id]
        if self._engine_based:
            return self._engine_step(text, ids)
        return self._step(self._whole_phrases(text), ids)

    def _whole_phrases(self, text: str) -> str:
        """A native parser that looks for phrases misses one that comes in many pieces, so it comes in one."""
        text = self._held + text
        known = len(text) - held_back(text, self._phrases)
        self._held = text[known:]
        return text[:known]

    def _step(self, text: str, ids: list[int]) -> Part:
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
        if not self.ended:  # nearly always, and this runs once per token
            return Part(message.reasoning or "", message.content or "") if message is not None else Part()
        held = self.parser.finish_streaming()
        found = [part for part in (message, held) if part is not None]
        return Part(
            "".join(part.reasoning or "" for part in found),
            "".join(part.content or "" for part in found),
            self._content_ids(ids),
        )

    def _content_ids(self, ids: list[int]) -> tuple[int, ...]:
        return tuple(self.parser.extract_content_ids(ids)) if self.ended and ids else ()

    def finish(self) -> Part:
        last = self._step(self._held, []) if self._held else Part()
        held = self._native_rest()
        return Part(last.reasoning + (held.reasoning or ""), last.content + (held.content or "")) if held else last

    def _native_rest(self) -> Any:
        """A DeltaMessage of what the native parser holds back; olmo3's has no method for it."""
        if self._engine_based:
            return self.parser.finish_streaming()
        buffer = getattr(self.parser, "buffer", None)
        return buffer.process_buffer() if buffer is not None else None
