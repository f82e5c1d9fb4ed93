# SPDX-License-Identifier: MIT
"""The conversation so far, and the next question out of it. Plain values: no wire, no terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_nnrp.client.events import Cancelled, ClientEvent, Done, Ending, Error, Text, ToolCallDone

Json = Mapping[str, Any]


class ToolsFileError(Exception):
    """The tools file cannot be used; `str()` is one line for the user."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to answer. Both doors get the same values, so the temperature is always sent."""

    temperature: float = 0.0
    max_tokens: int | None = None
    enable_thinking: bool | None = None  # None: as the model's template has it


@dataclass(frozen=True, slots=True)
class Question:
    """Everything one request says; messages and tools in OpenAI's form. gRPC needs no model name."""

    messages: tuple[Json, ...]
    tools: tuple[Json, ...] = ()
    model: str = ""
    sampling: Sampling = Sampling()

    def openai_body(self) -> dict[str, Any]:
        """A streamed chat completion that ends with its usage."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(self.messages),
            "temperature": self.sampling.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.tools:
            body["tools"] = list(self.tools)
        if self.sampling.max_tokens is not None:
            body["max_tokens"] = self.sampling.max_tokens
        if self.sampling.enable_thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": self.sampling.enable_thinking}
        return body


@dataclass(slots=True)
class Answer:
    """Collects an answer's events: the text without its reasoning, the completed calls, the ending."""

    calls: list[ToolCallDone] = field(default_factory=list)
    ending: Ending | None = None
    _pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def feed(self, event: ClientEvent) -> None:
        match event:
            case Text(text=text):
                self._pieces.append(text)
            case ToolCallDone():
                self.calls.append(event)
            case Done() | Error() | Cancelled():
                self.ending = event

    def message(self) -> dict[str, Any]:
        """As a message of the history. Reasoning stays out of it: templates drop it from earlier turns."""
        if not self.calls:
            return {"role": "assistant", "content": self.text}
        calls = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.calls
        ]
        return {"role": "assistant", "content": self.text or None, "tool_calls": calls}


class Conversation:
    """The history. Something is said or a tool's result given, question() asks, answered() takes the answer in."""

    def __init__(
        self,
        *,
        model: str = "",
        system: str | None = None,
        tools: Sequence[Json] = (),
        sampling: Sampling | None = None,
    ) -> None:
        self._model = model
        self._tools = tuple(tools)
        self._sampling = sampling or Sampling()
        self._system: list[Json] = [{"role": "system", "content": system}] if system else []
        self._messages: list[Json] = []
        self._open_calls: list[ToolCallDone] = []
        self._before_turn = 0  # length of the history that is known to be good

    @property
    def open_call(self) -> ToolCallDone | None:
        """The tool call whose result is awaited next."""
        return self._open_calls[0] if self._open_calls else None

    def clear(self) -> None:
        """Forget everything but the system prompt and the tools."""
        self._messages.clear()
        self._open_calls.clear()
        self._before_turn = 0

    def say(self, text: str) -> None:
        self._messages.append({"role": "user", "content": text})

    def give_result(self, text: str) -> None:
        """The result of `open_call`."""
        call = self._open_calls.pop(0)
        self._messages.append({"role": "tool", "tool_call_id": call.call_id, "name": call.name, "content": text})

    def question(self) -> Question:
        return Question((*self._system, *self._messages), self._tools, self._model, self._sampling)

    def answered(self, answer: Answer) -> None:
        """Keep a whole answer, and the text of a cancelled one; after anything else the turn is forgotten."""
        if isinstance(answer.ending, Done):
            self._messages.append(answer.message())
            self._open_calls = list(answer.calls)
        elif isinstance(answer.ending, Cancelled) and answer.text:
            self._messages.append({"role": "assistant", "content": answer.text})
        else:
            del self._messages[self._before_turn :]
        if not self._open_calls:
            self._before_turn = len(self._messages)


def load_tools(path: Path) -> tuple[Json, ...]:
    """The tools of a JSON file: an array in OpenAI's form. Raises ToolsFileError."""
    try:
        tools = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ToolsFileError(f"{path} cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        raise ToolsFileError(f"{path} is not JSON: {exc}") from exc
    if not isinstance(tools, list):
        raise ToolsFileError(f"{path} must hold a JSON array of tools")
    for number, tool in enumerate(tools, start=1):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ToolsFileError(
                f'{path}: tool {number} is not of the form {{"type": "function", "function": {{"name": …}}}}'
            )
    return tuple(tools)
