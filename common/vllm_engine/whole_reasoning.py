# SPDX-License-Identifier: MIT
"""Hunyuan's reasoning stands between phrases. Its native parser streams by the token ids they had in one tokenizer, and
loses what another split makes of them; its whole-text parse is right. So what has come is completed and given to that.
"""

from __future__ import annotations

from typing import Any

from vllm_engine.calls.native import waits
from vllm_engine.partial import held_back
from vllm_engine.reasoning import Part

THINK = "<think>\n"
ANSWER = "\n</think>\n<answer>\n"
END = "\n</answer>"


class WholeTextReasoning:
    """One choice's reasoning and content: it never ends, because the content has markup at its end, too."""

    ended = False

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._text = ""
        self._read_length = 0
        self._reasoning = 0  # characters said of each
        self._content = 0

    def feed(self, text: str, token_id: int | None) -> Part:
        self._text += text
        length = len(self._text)
        if waits(length - self._read_length, length):
            return Part()
        # The last character of a phrase may be the first one of the next, but is no beginning of it.
        ends = [self._text.rfind(phrase) + len(phrase) for phrase in (THINK, ANSWER) if phrase in self._text]
        return self._read(max(*ends, 0, length - held_back(self._text, (THINK, ANSWER, END))))

    def _read(self, length: int) -> Part:
        self._read_length = len(self._text)
        known = self._text[:length]
        if known.startswith(THINK) and ANSWER not in known:
            known += ANSWER
        reasoning, content = self._parser.extract_reasoning(known + END, None)
        part = Part((reasoning or "")[self._reasoning :], (content or "")[self._content :])
        self._reasoning += len(part.reasoning)
        self._content += len(part.content)
        return part

    def finish(self) -> Part:
        return self._read(len(self._text))
