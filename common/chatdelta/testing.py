# SPDX-License-Identifier: MIT
"""`ScriptedEngine`: plays deltas, raises on cue and records aborts. The only fake, and only at the Engine seam."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass

from chatdelta.deltas import EngineDelta, FinishReason
from chatdelta.engine import EngineInfo
from chatdelta.errors import BackendError, EngineDead
from chatdelta.requests import ChatRequest, GenerationRequest

SCRIPTED_INFO = EngineInfo(
    model_names=("scripted",),
    max_model_len=4096,
    engine_version="0",
    binding="scripted",
    tool_parser="hermes",
    reasoning_parser="qwen3",
)


@dataclass(frozen=True, slots=True)
class Wait:
    """A step that holds the stream until the event is set."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Gap:
    """A step that lets `seconds` pass, as a model does between tokens."""

    seconds: float


Step = EngineDelta | BaseException | Wait | Gap
Script = Callable[[GenerationRequest], Iterable[Step]]


def text_script(*texts: str, prompt_tokens: int = 3) -> tuple[Step, ...]:
    """One delta a text, one token each, then the finish reason."""
    deltas: list[Step] = [
        EngineDelta(content=text, prompt_tokens=prompt_tokens, completion_tokens=count)
        for count, text in enumerate(texts, start=1)
    ]
    last = EngineDelta(prompt_tokens=prompt_tokens, completion_tokens=len(texts) or 1, finish_reason=FinishReason.STOP)
    return (*deltas, last)


class ScriptedEngine:
    """An Engine whose answers are written down. `aborted` lists requests closed or aborted before their end."""

    def __init__(self, script: Script | Iterable[Step], *, info: EngineInfo = SCRIPTED_INFO) -> None:
        steps = None if callable(script) else tuple(script)
        self._script: Script = script if callable(script) else (lambda _request: steps or ())
        self._info = info
        self._dead = asyncio.Event()
        self._aborts: dict[str, asyncio.Event] = {}
        self.requests: list[GenerationRequest] = []
        self.running: set[str] = set()
        self.aborted: list[str] = []
        self.stopped = False

    @property
    def info(self) -> EngineInfo:
        return self._info

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineDelta, None]:
        self.check()
        self.requests.append(request)
        self.running.add(request.request_id)
        self._aborts[request.request_id] = asyncio.Event()
        finished = False
        try:
            for step in self._script(request):
                await self._pause(step, request.request_id)
                self.check()
                if self._aborts[request.request_id].is_set():
                    finished = True
                    yield EngineDelta(finish_reason=FinishReason.ABORT)
                    return
                if isinstance(step, BaseException):
                    finished = True
                    raise step
                if isinstance(step, EngineDelta):
                    yield step
            finished = True
        finally:
            self.running.discard(request.request_id)
            if not finished:
                self.aborted.append(request.request_id)

    async def _pause(self, step: Step, request_id: str) -> None:
        """Give the loop a turn, and honour Wait and Gap; an abort or the engine's death ends a wait."""
        if isinstance(step, Gap):
            await asyncio.sleep(step.seconds)
        elif isinstance(step, Wait):
            events = (step.event, self._aborts[request_id], self._dead)
            waits = [asyncio.ensure_future(event.wait()) for event in events]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        else:
            await asyncio.sleep(0)

    async def abort(self, request_id: str) -> bool:
        if request_id not in self.running:
            return False
        self.aborted.append(request_id)
        self._aborts[request_id].set()
        return True

    async def tokenize(self, request: GenerationRequest) -> tuple[int, ...]:
        text = (
            "".join(str(message.get("content", "")) for message in request.body["messages"])
            if isinstance(request, ChatRequest)
            else str(request.body["prompt"])
        )
        return tuple(text.encode())

    def kill(self) -> None:
        """Die as an engine does: every stream and every later call raises EngineDead."""
        self._dead.set()

    def check(self) -> None:
        if self._dead.is_set():
            raise EngineDead("the engine has died")

    async def wait_dead(self) -> None:
        await self._dead.wait()

    async def stop(self) -> None:
        self.stopped = True


def failing_script(error: BackendError, *before: Step) -> tuple[Step, ...]:
    """`before`, then `error`."""
    return (*before, error)
