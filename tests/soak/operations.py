# SPDX-License-Identifier: MIT
"""One operation as its client sees it, and the judgement on all that came for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nnrp.core.packet import unpack_body

from tests.soak.questions import Question
from tests.support import wire_frames as w
from vllm_nnrp.conformance.answer_rules import broken_rules
from vllm_nnrp.conformance.event_rules import Asked
from vllm_nnrp.conformance.models import Case, Expect, Request
from vllm_nnrp.conformance.observed import DROP, PARTIAL, PUSH, Observed, Seen

FRAMES = {w.PARTIAL_RESULT: PARTIAL, w.RESULT_PUSH: PUSH, w.RESULT_DROP_REASON: DROP}
TERMINALS = (w.RESULT_PUSH, w.RESULT_DROP_REASON)
OF_AN_OPERATION = (*FRAMES, w.PROGRESS)
EXTENSIONS = frozenset({"response.reasoning_text.delta", "vllm.diagnostics"})


class Wrong(AssertionError):
    """The server did what it must not."""


@dataclass(eq=False)
class Operation:
    """`trigger`: after so many frames `reached` is set. `codes`: the drops its client has asked for."""

    question: Question
    frame_id: int
    is_stream: bool
    policy: dict[str, bool]
    trigger: int
    codes: set[int] = field(default_factory=set)
    frames: list[w.Reply] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    is_lost: bool = False  # with its connection

    def __str__(self) -> str:
        return f"{self.question.name} {self.frame_id}: {[hex(frame.kind) for frame in self.frames[-3:]]}"

    @property
    def body(self) -> dict[str, Any]:
        options = {"stream": True, "stream_options": {"include_usage": True}} if self.is_stream else {"stream": False}
        return self.question.body | options

    @property
    def envelope(self) -> bytes:
        document = {"schema_version": "openai-compatible/1", "operation": "chat.completions.create", "body": self.body}
        return json.dumps(document | ({"nnrp": self.policy} if self.policy else {})).encode()

    @property
    def is_over(self) -> bool:
        return self.over.is_set()

    def take(self, frame: w.Reply) -> None:
        """Raises Wrong for what comes after the terminal."""
        if self.is_over:
            raise Wrong(f"{self}: {hex(frame.kind)} came after the terminal")
        self.frames.append(frame)
        if len(self.frames) >= self.trigger:
            self.reached.set()
        if frame.kind in TERMINALS:
            self._end()

    def lose(self) -> None:
        if not self.is_over:
            self.is_lost = True
            self._end()

    def _end(self) -> None:
        self.reached.set()
        self.over.set()

    # The judgement

    def outcome(self) -> str:
        """ "completed", "lost" or the drop's code. Raises Wrong."""
        sequences = [int.from_bytes(frame.metadata[8:16], "little") for frame in self._of(w.PARTIAL_RESULT)]
        if sequences != list(range(1, len(sequences) + 1)):
            raise Wrong(f"{self}: the sequence of events is {sequences}")
        if self.is_lost:
            self._check_beginning()
            return "lost"
        terminal = self.frames[-1]
        if terminal.kind == w.RESULT_PUSH:
            self._check_whole()
            return "completed"
        code = int.from_bytes(terminal.metadata[16:18], "little")
        if code not in self.codes:
            raise Wrong(f"{self}: dropped with code {code}, not one of {self.codes}: {terminal.body!r}")
        self._check_beginning()
        return f"code {code}"

    def _of(self, *kinds: int) -> list[w.Reply]:
        return [frame for frame in self.frames if frame.kind in kinds]

    def _check_whole(self) -> None:
        request = Request(body=self.body, nnrp=dict(self.policy) or None)
        expect = Expect(events=(), terminal="success")
        case = Case(id="soak", operation="chat.completions.create", status="mandatory", request=request, expect=expect)
        seen = tuple(Seen(FRAMES[frame.kind], 0, event_of(frame)) for frame in self._of(*FRAMES))
        observed = Observed(seen)
        broken = broken_rules(Asked(case, EXTENSIONS), observed)
        if broken or observed.completed is None:
            raise Wrong(f"{self}: {broken or seen[-1].event}")
        message = observed.choices[0]["message"]
        said = ((message.get("reasoning") or ""), (message["content"] or "").strip(), _calls(message))
        question = self.question
        calls = [(name, json.loads(text)) for name, text in question.calls]
        if said != (question.reasoning, question.text.strip(), calls):
            raise Wrong(f"{self}: the answer is {said}, not {question}")
        if observed.of("response.diagnostics") and not self.policy.get("diagnostics"):
            raise Wrong(f"{self}: diagnostics that nobody asked for")

    def _check_beginning(self) -> None:
        """What came before the end is the beginning of the right answer, in order."""
        heard = Heard(event_of(frame) for frame in self._of(w.PARTIAL_RESULT))
        question = self.question
        text = heard.text.strip()
        is_right = question.text.strip().startswith(text) and question.reasoning.startswith(heard.reasoning)
        is_in_order = not (text or heard.calls) or heard.reasoning == question.reasoning
        names = [name for name, _ in question.calls][: len(heard.calls)]
        if not (is_right and is_in_order and names == heard.calls):
            raise Wrong(f"{self}: {heard} is not how the answer begins")


@dataclass
class Heard:
    """The pieces of a stream, joined."""

    reasoning: str
    text: str
    calls: list[str]

    def __init__(self, events: Iterable[dict[str, Any]]) -> None:
        self.reasoning, self.text, self.calls = "", "", []
        for event in events:
            match event["type"]:
                case "response.reasoning_text.delta":
                    self.reasoning += event["delta"]
                case "response.output_text.delta":
                    self.text += event["delta"]
                case "response.tool_call.started":
                    self.calls.append(event["name"])


def event_of(frame: w.Reply) -> dict[str, Any]:
    if frame.kind != w.RESULT_PUSH:
        event: dict[str, Any] = json.loads(frame.body)
        return event
    result: dict[str, Any] = json.loads(bytes(unpack_body(frame.body).typed_payload_frame_region))
    return result


def _calls(message: dict[str, Any]) -> list[tuple[str, Any]]:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return [(call["name"], json.loads(call["arguments"])) for call in calls]
