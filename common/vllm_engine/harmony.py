# SPDX-License-Identifier: MIT
"""gpt-oss: vLLM's HarmonyParser reads token ids; here the tokens are held until their text has been said."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from vllm_engine.alignment import Aligner
from vllm_engine.calls import Said, Sink
from vllm_engine.calls.fragments import Fragments
from vllm_engine.errors import failure_of_parser

log = logging.getLogger(__name__)


class Harmony:
    """The `ChoiceParser` of a gpt-oss choice.

    vLLM's end-of-stream flush is not used: it repeats the message being written as text when the answer was cut.
    """

    def __init__(
        self,
        parser: Any,
        request: Any,
        sink: Sink,
        aligner: Aligner | None,
        *,
        end_token_ids: Collection[int],
        request_id: str,
    ) -> None:
        self._parser = parser
        self._request = request
        self._sink = sink
        self._fragments = Fragments(sink)
        self._aligner = aligner
        self._end_token_ids = end_token_ids
        self._request_id = request_id
        self._reasoning: list[str] = []
        self._say: Callable[[str], None] = sink.text  # where text without a token belongs
        self._failed = False
        self.reasoning_tokens = 0

    @property
    def called_tools(self) -> bool:
        return self._sink.called

    def feed(self, text: str, token_id: int | None, *, finished: bool) -> Said:
        pieces = [(text, token_id)]
        if self._aligner is not None:
            pieces = list(self._aligner.feed(text, token_id, finished=finished))
        failure = None
        for piece, piece_id in pieces:
            if self._failed:
                self._sink.text(piece)
                continue
            try:
                self._step(piece, piece_id)
            except Exception as exc:
                # A parser is third-party code on model output: whatever it raises, the answer goes on as plain text.
                log.error("%s", failure_of_parser(exc), extra={"request_id": self._request_id})
                self._failed, failure = True, type(exc).__name__
                self._sink.text(piece)
        if finished:
            self._fragments.close(cut=token_id not in self._end_token_ids)
            self._sink.finish()
        found = self._sink.take()
        reasoning = "".join(self._reasoning)
        self._reasoning.clear()
        return Said(found.content, reasoning, found.tool_calls, failure)

    def _step(self, text: str, token_id: int | None) -> None:
        if token_id is None:
            self._say(text)
            return
        message = self._parser.parse_delta(text, [token_id], self._request, None, finished=False)
        if message is None:
            return
        if message.reasoning:
            self.reasoning_tokens += 1
            self._reasoning.append(message.reasoning)
            self._say = self._reasoning.append
        elif message.content:
            self._say = self._sink.text
        elif message.tool_calls:
            self._say = self._sink.arguments
        self._fragments.add(message, calls=self._request.tool_choice != "none")
