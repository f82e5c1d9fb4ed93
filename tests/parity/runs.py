# SPDX-License-Identifier: MIT
"""Plays an entry on our engine and on vLLM's own serving object; what comes out, in one shape."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chatdelta import (
    BackendError,
    ChatRequest,
    Completed,
    Failed,
    Origin,
    ResponseHead,
    StreamMapper,
    ToolCallCompleted,
    ToolCallFailed,
)
from tests.parity.entries import TOOLS, Entry, Family
from tests.parity.models import PACKAGES, build_folder
from tests.parity.npm import GPT_OSS, folder_of

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a client saw. `calls` are (name, argument text); `faults` break a rule whatever the entry expects."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = ""
    faults: tuple[str, ...] = ()


class Bench:
    """One family: a scripted client with our engine and vLLM's server on it."""

    def __init__(self, family: Family, root: Path) -> None:
        from vllm_engine.oracle.client import ScriptedClient
        from vllm_engine.oracle.serving import Oracle, scripted_config, scripted_engine
        from vllm_engine.spec import EngineSpec

        folder = build_folder(family, root / family.name.replace(": ", "-"))
        if family.tokenizer == "o200k":
            os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder_of(GPT_OSS))
        modes = {"tokenizer_mode": "mistral"} if family.tokenizer.startswith("tekken") else {}
        self.family = family
        self.client = ScriptedClient(scripted_config(folder, **modes))
        spec = EngineSpec(
            str(folder), ("tiny",), tool_parser=family.tool_parser, reasoning_parser=family.reasoning_parser
        )
        self.engine = scripted_engine(self.client, spec)
        self.oracle = Oracle(self.client, spec)
        self.tokenizer = self.client.renderer.get_tokenizer()
        self._markers = markers(family)
        self._token_ids: dict[tuple[str, bool], tuple[int, ...]] = {}

    def token_ids(self, entry: Entry, *, by_character: bool = False) -> tuple[int, ...]:
        """The raw output as the model would have generated it; `by_character`: as a tokenizer without merges."""
        if (entry.case, by_character) in self._token_ids:
            return self._token_ids[entry.case, by_character]
        ids = tuple(
            token_id
            for piece in self._markers.split(entry.raw.text)
            for text in ((piece,) if not by_character or self._markers.fullmatch(piece) else piece)
            for token_id in self._encode(text)
        )
        ids = ids if entry.raw.cut else (*ids, self.tokenizer.eos_token_id)
        return self._token_ids.setdefault((entry.case, by_character), ids)

    def _encode(self, text: str) -> list[int]:
        if not self.family.tokenizer.startswith("tekken"):
            return list(self.tokenizer.encode(text, add_special_tokens=False))
        if self._markers.fullmatch(text):  # tekken encodes no control tokens from text
            return [self.tokenizer.tokenizer.get_special_token(text)]
        return list(self.tokenizer.tokenizer.encode(text, bos=False, eos=False))

    def body(self, entry: Entry) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "Go."}],
            "tools": [dict(tool) for tool in TOOLS],
            **entry.raw.body,
        }
        if entry.raw.stop:
            body["stop"] = list(entry.raw.stop)
        if self.family.tokenizer in ("bpe", *PACKAGES) and self.family.reasoning_parser:
            body["chat_template_kwargs"] = {self.family.thinking_kwarg: self.family.thinking_values[entry.raw.thinking]}
        return body

    def play(self, token_ids: Sequence[int], delta_sizes: Sequence[int]) -> None:
        from vllm_engine.oracle.client import Playback

        self.client.playback = Playback((token_ids,), delta_sizes)

    async def ours(
        self, entry: Entry, delta_sizes: Sequence[int], *, by_character: bool = False
    ) -> tuple[Outcome, Outcome]:
        """Streamed and completed body."""
        self.play(self.token_ids(entry, by_character=by_character), delta_sizes)
        request_id = f"parity-{next(_numbers)}"
        mapper = StreamMapper(ResponseHead(request_id, 0, "tiny"))
        request = ChatRequest(request_id, self.body(entry), Origin(door="test"))
        deltas, events = [], []
        try:
            async for delta in self.engine.generate(request):
                deltas.append(delta)
                events += mapper.feed(delta)
        except BackendError as exc:
            return (Outcome(faults=(f"{type(exc).__name__}: {exc}",)),) * 2
        *_, terminal = mapper.complete()
        faults = [f"parser failed: {delta.parser_failure}" for delta in deltas if delta.parser_failure]
        ended = [event for event in events if isinstance(event, ToolCallCompleted | ToolCallFailed)]
        if isinstance(terminal, Failed) or not isinstance(terminal, Completed):
            return (Outcome(faults=(f"ended as {terminal}",)),) * 2
        if len(ended) != len(terminal.body["choices"][0]["message"].get("tool_calls", ())):
            faults.append("a tool call was not ended exactly once")
        calls: dict[int, list[str]] = {}
        for delta in deltas:
            for fragment in delta.tool_calls:
                call = calls.setdefault(fragment.index, [fragment.name or "", ""])
                call[1] += fragment.arguments
        streamed = Outcome(
            "".join(delta.content for delta in deltas),
            "".join(delta.reasoning for delta in deltas),
            tuple((name, arguments) for name, arguments in calls.values()),
            str(deltas[-1].finish_reason.value if deltas[-1].finish_reason else None),
            tuple(faults),
        )
        return streamed, _of_body(terminal.body)

    async def oracle_streamed(self, entry: Entry, delta_sizes: Sequence[int]) -> Outcome:
        self.play(self.token_ids(entry), delta_sizes)
        try:
            return _of_chunks(await self.oracle.stream(self.body(entry)))
        except Exception as exc:  # whatever vLLM raises is a result here
            return Outcome(faults=(f"{type(exc).__name__}: {exc}",))

    async def oracle_complete(self, entry: Entry) -> Outcome:
        self.play(self.token_ids(entry), (1,))
        try:
            return _of_body(await self.oracle.complete(self.body(entry)))
        except Exception as exc:
            return Outcome(faults=(f"{type(exc).__name__}: {exc}",))


def markers(family: Family) -> re.Pattern[str]:
    """Finds what is one token whatever surrounds it; capturing, for re.split."""
    texts = [*family.special_tokens, *family.markup_tokens]
    if family.tokenizer.startswith("tekken"):
        texts += ["[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]"]
    if family.tokenizer == "o200k":
        texts += [f"<|{name}|>" for name in ("start", "end", "message", "channel", "constrain", "return", "call")]
    return re.compile(f"({'|'.join(map(re.escape, texts)) or '(?!)'})")


def _of_body(body: Mapping[str, Any]) -> Outcome:
    (choice,) = body["choices"]
    message = choice["message"]
    calls = message.get("tool_calls") or ()
    return Outcome(
        message.get("content") or "",
        message.get("reasoning") or "",
        tuple((call["function"]["name"], call["function"]["arguments"]) for call in calls),
        choice["finish_reason"],
        _id_faults([call["id"] for call in calls]),
    )


def _of_chunks(chunks: Iterable[Mapping[str, Any]]) -> Outcome:
    content, reasoning, finish = "", "", ""
    calls: dict[int, list[str]] = {}
    ids: list[str] = []
    faults: list[str] = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            content += delta.get("content") or ""
            reasoning += delta.get("reasoning") or ""
            finish = choice.get("finish_reason") or finish
            for call in delta.get("tool_calls") or ():
                known = calls.setdefault(call["index"], ["", ""])
                function = call.get("function") or {}
                if function.get("name"):
                    if known[0]:
                        faults.append("a call's name came twice")
                    known[0] = function["name"]
                    ids.append(call.get("id") or "")
                known[1] += function.get("arguments") or ""
    if sorted(calls) != list(range(len(calls))):
        faults.append(f"indices {sorted(calls)}")
    return Outcome(
        content,
        reasoning,
        tuple((name, arguments) for _, (name, arguments) in sorted(calls.items())),
        finish,
        (*faults, *_id_faults(ids)),
    )


def _id_faults(ids: Sequence[str]) -> tuple[str, ...]:
    if not all(ids):
        return ("a call without id",)
    return ("two calls with one id",) if len(set(ids)) != len(ids) else ()
