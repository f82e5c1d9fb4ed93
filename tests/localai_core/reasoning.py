# SPDX-License-Identifier: MIT
"""Core's own split of text into reasoning and content, by the tags of the model families."""

from __future__ import annotations

from collections.abc import Iterator

TAGS = (
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<seed:think>", "</seed:think>"),
    ("<think>", "</think>"),
    ("<|think|>", "<|end|><|begin|>assistant<|content|>"),
    ("<|channel>thought", "<channel|>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
)
# The order in which a prompt is searched for them.
START_TAGS = (TAGS[0][0], TAGS[5][0], *(TAGS[index][0] for index in (1, 2, 3, 4, 6, 7)))
BLANKS = " \t\n\r"


def start_tag_in(prompt: str) -> str:
    """The tag that core believes to be open where the answer begins: any that stands anywhere in the prompt."""
    return next((tag for tag in START_TAGS if tag in prompt), "")


def split(text: str, start_tag: str = "") -> tuple[str, str]:
    """(reasoning, content) of a text so far. An open tag takes all that follows it."""
    parts: list[str] = []
    content: list[str] = []
    text = _with_start(text, start_tag)
    position = 0
    for begin, inner_begin, inner_end, end in _tagged(text):
        content.append(text[position:begin])
        if inner := text[inner_begin:inner_end].strip():
            parts.append(inner)
        position = end
    content.append(text[position:])
    return "\n\n".join(parts), "".join(content)


def split_complete(text: str, start_tag: str = "") -> tuple[str, str]:
    """The same for a whole answer: there a tag that the prompt opened counts only if the answer closes it."""
    closes = dict(TAGS).get(start_tag)
    return split(text, start_tag if closes and closes in text else "")


def _tagged(text: str) -> Iterator[tuple[int, int, int, int]]:
    """(begin, inner begin, inner end, end) of each tagged part, in order."""
    position = 0
    while True:
        found = [(text.find(start, position), index) for index, (start, _) in enumerate(TAGS)]
        found = [pair for pair in found if pair[0] >= 0]
        if not found:
            return
        begin, index = min(found)
        start, close = TAGS[index]
        inner_begin = begin + len(start)
        inner_end = text.find(close, inner_begin)
        if inner_end < 0:
            inner_end = position = len(text)
        else:
            position = inner_end + len(close)
        yield begin, inner_begin, inner_end, position


def _with_start(text: str, start_tag: str) -> str:
    """`text` behind the tag that its prompt ended with, unless it has the tag or is about to."""
    bare = text.lstrip(BLANKS)
    if not start_tag or start_tag in bare or (bare and start_tag.startswith(bare)):
        return text
    return text[: len(text) - len(bare)] + start_tag + bare


class Extractor:
    """The split of a stream: what each token adds to reasoning and content."""

    def __init__(self, start_tag: str = "") -> None:
        self._start_tag = start_tag
        self._is_silent = False
        self._clear()

    def _clear(self) -> None:
        self._text = self.reasoning = self.content = ""
        self._delta_text = self._delta_shown = ""

    def clear_and_hide_reasoning(self) -> None:
        """Before another attempt: the reasoning of the first was shown already."""
        self._clear()
        self._is_silent = True

    def feed(self, token: str) -> tuple[str, str]:
        """(reasoning, content) that `token` of the message adds."""
        self._text += token
        reasoning, content = split(self._text, self._start_tag)
        added_reasoning, added_content = _added(self.reasoning, reasoning), _added(self.content, content)
        self.reasoning, self.content = reasoning, content
        return "" if self._is_silent else added_reasoning, added_content

    def feed_reasoning_delta(self, delta: str) -> str:
        """The reasoning of a chat delta with known tags removed: what of it is new."""
        if not delta:
            return ""
        self._delta_text += delta
        reasoning, rest = split(self._delta_text)
        if not reasoning:
            bare = self._delta_text.strip()
            is_inside_tag = not rest and bool(bare)
            begins_tag = len(bare) < len(self._start_tag) and self._start_tag.startswith(bare)
            reasoning = "" if is_inside_tag or begins_tag else self._delta_text
        added = _added(self._delta_shown, reasoning)
        self._delta_shown = reasoning
        return "" if self._is_silent else added


def _added(before: str, after: str) -> str:
    """What is new; all of it where the text did not merely grow."""
    return after[len(before) :] if after.startswith(before) else after
