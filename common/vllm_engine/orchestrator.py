# SPDX-License-Identifier: MIT
"""One choice from tokens to meaning: the reasoning until it ends, then calls out of the content only.

Nothing is said twice and nothing is lost: what a parser still holds at the end comes out, and where one raises, the
answer goes on as plain text from the first character that had not been said.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable

from vllm_engine.alignment import Aligner
from vllm_engine.calls import CallReader, Said, Sink
from vllm_engine.calls.sink import NOTHING
from vllm_engine.errors import failure_of_parser
from vllm_engine.reasoning import Part, ReasoningReader

log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class Parts:
    """What an orchestrator drives. `calls` is None where no tool may be called."""

    sink: Sink
    reasoning: ReasoningReader | None = None
    calls: CallReader | None = None
    aligner: Aligner | None = None


class Orchestrator:
    """The `ChoiceParser` of every family but harmony."""

    def __init__(
        self, parts: Parts, *, end_token_ids: Collection[int], request_id: str, include_reasoning: bool = True
    ) -> None:
        self._parts = parts
        self._end_token_ids = end_token_ids
        self._request_id = request_id
        self._include_reasoning = include_reasoning
        self._reasoning_text = ""
        self._unsaid = ""  # raw text whose meaning has not come out yet
        self._failed = False
        self._calls_said = 0
        self.reasoning_tokens = 0

    @property
    def called_tools(self) -> bool:
        # Calls that were found in the step that failed are in the text that follows, and nowhere else.
        return self._parts.sink.called and self._calls_said == self._parts.sink.calls

    def feed(self, text: str, token_id: int | None, *, finished: bool) -> Said:
        pieces: Iterable[tuple[str, int | None]] = ((text, token_id),)
        if self._parts.aligner is not None:
            pieces = self._parts.aligner.feed(text, token_id, finished=finished)
        pieces = iter(pieces)
        if self._failed:
            return Said("".join(piece for piece, _ in pieces))
        said = NOTHING
        try:
            for piece, piece_id in pieces:
                self._unsaid += piece
                self._step(piece, piece_id)
                said = _joined(said, self._take())
            if finished:
                self._finish(cut=token_id not in self._end_token_ids)
                said = _joined(said, self._take())
        except Exception as exc:
            # A parser is third-party code on model output: whatever it raises, the answer goes on as plain text.
            log.error("%s", failure_of_parser(exc), extra={"request_id": self._request_id})
            rest = self._unsaid + "".join(piece for piece, _ in pieces)
            self._failed = True
            said = said._replace(content=said.content + rest, parser_failure=type(exc).__name__)
        return said

    def _step(self, text: str, token_id: int | None) -> None:
        reasoning = self._parts.reasoning
        if reasoning is None or reasoning.ended:
            self._content(text, token_id)
            return
        part = reasoning.feed(text, token_id)
        if token_id is not None and not reasoning.ended and not part.content:
            self.reasoning_tokens += 1
        self._reasoning_text += part.reasoning
        self._pass_on(part)

    def _pass_on(self, part: Part) -> None:
        if part.content or part.token_ids:
            self._content(part.content, part.token_ids[-1] if part.token_ids else None)

    def _content(self, text: str, token_id: int | None) -> None:
        if self._parts.calls is None:
            self._parts.sink.text(text)
        else:
            self._parts.calls.feed(text, token_id)

    def _finish(self, *, cut: bool) -> None:
        reasoning = self._parts.reasoning
        if reasoning is not None and not reasoning.ended:
            part = reasoning.finish()
            self._reasoning_text += part.reasoning
            self._pass_on(part)
        if self._parts.calls is not None:
            self._parts.calls.finish(cut=cut)
        self._parts.sink.finish()

    def _take(self) -> Said:
        """What has been found since the last time."""
        found = self._parts.sink.take()
        reasoning, self._reasoning_text = self._reasoning_text, ""
        self._note(reasoning)
        self._note(found.content)
        for call in found.tool_calls:
            self._calls_said += call.name is not None
            self._note(call.name)
            self._note(call.arguments)
        if not reasoning or not self._include_reasoning:
            return found
        return Said(found.content, reasoning, found.tool_calls)

    def _note(self, said: str | None) -> None:
        if said:
            self._unsaid = self._unsaid.partition(said)[2]  # nothing where a parser says it in other words


def _joined(first: Said, second: Said) -> Said:
    if first is NOTHING:
        return second
    if second is NOTHING:
        return first
    return Said(
        first.content + second.content,
        first.reasoning + second.reasoning,
        first.tool_calls + second.tool_calls,
    )
