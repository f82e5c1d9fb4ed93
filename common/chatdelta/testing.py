# SPDX-License-Identifier: MIT
"""`ScriptedEngine`: plays deltas and results, raises on cue and records aborts. The only fake, at the Engine seam."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from chatdelta.deltas import EngineDelta, FinishReason
from chatdelta.engine import EngineInfo
from chatdelta.errors import BackendError, EngineDead, RequestCancelled
from chatdelta.requests import ChatRequest, GenerationRequest
from chatdelta.tasks import (
    Embedding,
    EmbeddingRequest,
    PromptTemplate,
    Relevance,
    RerankRequest,
    ScoreRequest,
    Scores,
    Task,
    TaskRequest,
    TaskResult,
)

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
TaskStep = TaskResult | BaseException | Wait | Gap
Result = TypeVar("Result", Embedding, Relevance, Scores)


def text_script(*texts: str, prompt_tokens: int = 3) -> tuple[Step, ...]:
    """One delta a text, one token each, then the finish reason."""
    deltas: list[Step] = [
        EngineDelta(content=text, prompt_tokens=prompt_tokens, completion_tokens=count)
        for count, text in enumerate(texts, start=1)
    ]
    last = EngineDelta(prompt_tokens=prompt_tokens, completion_tokens=len(texts) or 1, finish_reason=FinishReason.STOP)
    return (*deltas, last)


class ScriptedEngine:
    """An Engine whose answers are written down. `aborted` lists requests closed or aborted before their end.

    `tasks` are the steps of every embed(), rerank() and score(), up to the result that is of its kind.
    """

    def __init__(
        self,
        script: Script | Iterable[Step],
        *,
        tasks: Iterable[TaskStep] = (),
        template: PromptTemplate | None = None,
        info: EngineInfo = SCRIPTED_INFO,
    ) -> None:
        steps = None if callable(script) else tuple(script)
        self._script: Script = script if callable(script) else (lambda _request: steps or ())
        self._tasks = tuple(tasks)
        self._template = template or PromptTemplate("", supports_thinking=False)
        self._info = info
        self._dead = asyncio.Event()
        self._aborts: dict[str, asyncio.Event] = {}
        self.requests: list[GenerationRequest] = []
        self.task_requests: list[TaskRequest] = []
        self.running: set[str] = set()
        self.aborted: list[str] = []
        self.stopped = False

    @property
    def info(self) -> EngineInfo:
        return self._info

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineDelta, None]:
        self.check()
        self._info.require(Task.GENERATE)
        self.requests.append(request)
        with self._held(request.request_id) as run:
            for step in self._script(request):
                await self._pause(step, request.request_id)
                self.check()
                if self._aborts[request.request_id].is_set():
                    run.finished = True
                    yield EngineDelta(finish_reason=FinishReason.ABORT)
                    return
                if isinstance(step, BaseException):
                    run.finished = True
                    raise step
                if isinstance(step, EngineDelta):
                    yield step
            run.finished = True

    @contextmanager
    def _held(self, request_id: str) -> Iterator[_Run]:
        self.running.add(request_id)
        self._aborts[request_id] = asyncio.Event()
        run = _Run()
        try:
            yield run
        finally:
            self.running.discard(request_id)
            del self._aborts[request_id]
            if not run.finished:
                self.aborted.append(request_id)

    async def _pause(self, step: Step | TaskStep, request_id: str) -> None:
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

    async def embed(self, request: EmbeddingRequest) -> Embedding:
        return await self._perform(request, Task.EMBED, Embedding)

    async def rerank(self, request: RerankRequest) -> Relevance:
        return await self._perform(request, Task.RERANK, Relevance)

    async def score(self, request: ScoreRequest) -> Scores:
        return await self._perform(request, Task.GENERATE, Scores)

    async def _perform(self, request: TaskRequest, task: Task, kind: type[Result]) -> Result:
        self.check()
        self._info.require(task)
        self.task_requests.append(request)
        with self._held(request.request_id) as run:
            for step in self._tasks:
                await self._pause(step, request.request_id)
                self.check()
                if self._aborts[request.request_id].is_set():
                    run.finished = True
                    raise RequestCancelled("the request was aborted")
                if isinstance(step, kind | BaseException):
                    run.finished = True
                    if isinstance(step, BaseException):
                        raise step
                    return step
        raise AssertionError(f"no {kind.__name__} is written down")

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

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        return bytes(token_ids).decode()

    async def prompt_template(self) -> PromptTemplate:
        return self._template

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


@dataclass(slots=True)
class _Run:
    """One request in the engine; what is not finished when it leaves was aborted."""

    finished: bool = False


def failing_script(error: BackendError, *before: Step) -> tuple[Step, ...]:
    """`before`, then `error`."""
    return (*before, error)
