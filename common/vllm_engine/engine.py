# SPDX-License-Identifier: MIT
"""`VllmEngine`: chatdelta's Engine on AsyncLLM, engine-direct, with delta outputs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from tempfile import TemporaryDirectory
from typing import Any

from chatdelta import (
    Embedding,
    EmbeddingRequest,
    EngineDead,
    EngineDelta,
    EngineInfo,
    FinishReason,
    GenerationRequest,
    PromptTemplate,
    Relevance,
    RerankRequest,
    ScoreRequest,
    Scores,
    Task,
    Timings,
    UnsupportedOperation,
)
from chatserving.closing import closing
from vllm_engine.adapters import Adapters
from vllm_engine.bindings import Rendered, Runtime
from vllm_engine.errors import translate
from vllm_engine.in_flight import InFlight
from vllm_engine.logprobs import token_logprobs
from vllm_engine.pooling_tasks import served_tasks
from vllm_engine.prompt_template import probe_template
from vllm_engine.prompts import detokenize
from vllm_engine.scoring import score
from vllm_engine.split import TokenSplitter

log = logging.getLogger(__name__)
WATCH_S = 0.2
STOP_S = 2.0  # then the core is killed: LocalAI gives Free five seconds, and nothing in it is worth waiting for
FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "repetition": FinishReason.STOP,
    "abort": FinishReason.ABORT,
    "error": FinishReason.ERROR,
}


class VllmEngine:
    """One loaded model. Belongs to the event loop that serves it; built elsewhere (`open_engine`).

    Raises InvalidRequest for a model that is for none of our tasks; `supported_tasks` are vLLM's names for its own.
    `folder` holds files of the engine's and goes with it.
    """

    def __init__(
        self,
        runtime: Runtime,
        info: EngineInfo,
        supported_tasks: Sequence[str] = ("generate",),
        *,
        adapters: Adapters,
        folder: TemporaryDirectory[str] | None = None,
    ) -> None:
        self._runtime = runtime
        self._folder = folder
        self._adapters = adapters
        self._in_flight = InFlight(runtime.llm)
        self._pooling = runtime.pooling(self._in_flight, supported_tasks, adapters.of())
        self._info = dataclasses.replace(info, tasks=served_tasks(self._pooling, supported_tasks))
        self._dead = asyncio.Event()
        self._stopped = False

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def llm(self) -> Any:
        """The AsyncLLM underneath; for this package and its tests."""
        return self._runtime.llm

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineDelta, None]:
        with self._serving(request.request_id, Task.GENERATE):
            rendered = await self._runtime.render(request)
            async with self._streaming(request, rendered) as outputs:
                choices = [_Choice(index, rendered, self._runtime.tokenizer) for index in range(len(rendered.parsers))]
                async for output in outputs:
                    for delta in _deltas(output, choices):
                        yield delta

    async def embed(self, request: EmbeddingRequest) -> Embedding:
        with self._serving(request.request_id, Task.EMBED):
            return await self._pooling.embed(request)

    async def rerank(self, request: RerankRequest) -> Relevance:
        with self._serving(request.request_id, Task.RERANK):
            return await self._pooling.rerank(request)

    async def score(self, request: ScoreRequest) -> Scores:
        with self._serving(request.request_id, Task.GENERATE):
            if self._runtime.llm.vllm_config.lora_config is not None:
                # It maps adapters to sequences where it would have to map them to tokens: wrong values, and on a CPU
                # the end of the engine (vLLM issues 51594, 29955).
                raise UnsupportedOperation("vLLM has no log-probabilities of a prompt while LoRA adapters are loaded")
            return await score(self._runtime.llm, self._in_flight, request, self._adapters.of())

    async def tokenize(self, request: GenerationRequest) -> tuple[int, ...]:
        with self._serving(request.request_id):
            return tuple((await self._runtime.render(request)).prompt_token_ids)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        with self._serving("detokenize"):
            return await detokenize(self._runtime.llm.renderer, token_ids)

    async def prompt_template(self) -> PromptTemplate:
        with self._serving("prompt_template"):
            return await probe_template(self._runtime, has_reasoning_parser=self._info.reasoning_parser is not None)

    @contextlib.contextmanager
    def _serving(self, request_id: str, task: Task | None = None) -> Iterator[None]:
        """Around the work for a request: refuse what cannot be, and let nothing but our own errors out."""
        self.check()
        if task is not None:
            self._info.require(task)
        try:
            yield
        except Exception as exc:
            error = translate(exc, request_id)
            if isinstance(error, EngineDead):
                self._dead.set()
            if error is exc:
                raise
            raise error from exc

    @contextlib.asynccontextmanager
    async def _streaming(
        self, request: GenerationRequest, rendered: Rendered
    ) -> AsyncGenerator[AsyncGenerator[Any, None], None]:
        """The engine's outputs. Those that nobody takes are merged by vLLM, and cut into tokens again by `_deltas`."""
        trace = request.policy.trace.traceparent() if request.policy.trace else None
        stream = self._runtime.llm.generate(
            rendered.prompt,
            rendered.sampling_params,
            request.request_id,
            trace_headers={"traceparent": trace} if trace else None,
            priority=request.policy.priority,
            lora_request=self._adapters.of(request.body.get("model")),
            **rendered.generate_kwargs,
        )
        async with self._in_flight.holding(request.request_id, (request.request_id,)), closing(stream) as outputs:
            yield outputs

    async def abort(self, request_id: str) -> bool:
        return await self._in_flight.abort(request_id)

    def check(self) -> None:
        if self._stopped or self._dead.is_set() or self._runtime.llm.errored:
            self._dead.set()
            raise EngineDead("the engine has died")

    async def wait_dead(self) -> None:
        """vLLM tells nobody when its core dies idle, so its own flag is looked at a few times a second."""
        while not self._dead.is_set() and not self._runtime.llm.errored:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._dead.wait(), WATCH_S)
        self._dead.set()

    async def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        await asyncio.to_thread(self._runtime.llm.shutdown, STOP_S)
        if self._folder is not None:
            self._folder.cleanup()


class _Choice:
    """What one choice needs to remember between deltas."""

    def __init__(self, index: int, rendered: Rendered, tokenizer: Any) -> None:
        self.index = index
        self.parser = rendered.parsers[index]
        params = rendered.sampling_params
        self.splitter = TokenSplitter(
            tokenizer, skip_special_tokens=params.skip_special_tokens, holds_text=bool(params.stop)
        )
        self.tokenizer = tokenizer
        self.top_logprobs: int = -1 if getattr(params, "logprob_token_ids", None) else params.logprobs or 0
        self.names_tool = rendered.names_tool
        self.prompt_tokens = len(rendered.prompt_token_ids)
        self.completion_tokens = 0

    def tokens(self, output: Any) -> Sequence[tuple[str, int | None]]:
        """(text, token id) one by one; an output without tokens (the last text of a stop string) is one piece."""
        if not output.token_ids:
            return ((output.text, None),)
        return self.splitter.split(output.text, output.token_ids)


def _deltas(output: Any, choices: list[_Choice]) -> Iterator[EngineDelta]:
    """The deltas of one RequestOutput; its last one carries the request's timings when the request is finished."""
    for position, choice_output in enumerate(output.outputs):
        choice = choices[choice_output.index]
        is_last = position == len(output.outputs) - 1
        logprobs = token_logprobs(choice_output, choice.tokenizer, top=choice.top_logprobs)
        tokens = choice.tokens(choice_output)
        for at, (text, token_id) in enumerate(tokens):
            more_follows = at < len(tokens) - 1
            finished = choice_output.finish_reason is not None and not more_follows
            delta = choice.parser.feed(text, token_id, finished=finished)
            if token_id is not None:
                choice.completion_tokens += 1
            reason = _finish_reason(choice_output.finish_reason, choice) if finished else None
            yield EngineDelta(  # positional and not replace(): this runs once per token
                choice.index,
                delta.content,
                delta.reasoning,
                delta.tool_calls,
                logprobs[at : at + 1],
                choice.prompt_tokens,
                choice.completion_tokens,
                choice.parser.reasoning_tokens,
                output.num_cached_tokens,
                reason,
                choice_output.stop_reason if finished else None,
                delta.parser_failure,
                _timings(output.metrics) if finished and is_last and output.finished else None,
                more_follows or not is_last,
            )


def _finish_reason(reason: str, choice: _Choice) -> FinishReason:
    """OpenAI's word: "tool_calls" where calls were made and none was named in advance; a cut answer stays "length"."""
    ours = FINISH_REASONS.get(reason, FinishReason.ERROR)
    if ours is FinishReason.STOP and choice.parser.called_tools and not choice.names_tool:
        return FinishReason.TOOL_CALLS
    return ours


def _timings(metrics: Any) -> Timings | None:
    if metrics is None:
        return None  # disable_log_stats
    return Timings(
        queue_s=max(0.0, metrics.scheduled_ts - metrics.queued_ts),
        prefill_s=max(0.0, metrics.first_token_ts - metrics.scheduled_ts),
        decode_s=max(0.0, metrics.last_token_ts - metrics.first_token_ts),
    )
