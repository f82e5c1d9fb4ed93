# SPDX-License-Identifier: MIT
"""`VllmEngine`: chatdelta's Engine on AsyncLLM, engine-direct, with delta outputs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from chatdelta import (
    BackendError,
    EngineDead,
    EngineDelta,
    EngineInfo,
    FinishReason,
    GenerationRequest,
    InvalidRequest,
    Timings,
)
from vllm_engine.bindings import Rendered, Runtime
from vllm_engine.errors import translate
from vllm_engine.logprobs import token_logprobs
from vllm_engine.pump import Pump
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
# Of vLLM's request model, but the server's to set: an image scaled to another size than the model's ends the engine.
SERVER_FIELDS = ("mm_processor_kwargs",)


class VllmEngine:
    """One loaded model. Belongs to the event loop that serves it; built elsewhere (`open_engine`)."""

    def __init__(self, runtime: Runtime, info: EngineInfo) -> None:
        self._runtime = runtime
        self._info = info
        self._running: set[str] = set()
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
        self.check()
        try:
            rendered = await self._render(request)
            async with self._streaming(request, rendered) as outputs:
                choices = [_Choice(index, rendered, self._runtime.tokenizer) for index in range(len(rendered.parsers))]
                async for output in outputs:
                    for delta in _deltas(output, choices):
                        yield delta
        except Exception as exc:
            error = translate(exc, request.request_id)
            if isinstance(error, EngineDead):
                self._dead.set()
            if error is exc:
                raise
            raise error from exc

    async def _render(self, request: GenerationRequest) -> Rendered:
        for field in SERVER_FIELDS:
            if request.body.get(field):
                raise InvalidRequest(f"{field} is not a request's to set", code="invalid_body", param=field)
        return await self._runtime.render(request)

    @contextlib.asynccontextmanager
    async def _streaming(self, request: GenerationRequest, rendered: Rendered) -> AsyncGenerator[Pump[Any], None]:
        """The request's outputs. On exit the request is gone from the engine, whatever happened."""
        trace = request.policy.trace.traceparent() if request.policy.trace else None
        stream = self._runtime.llm.generate(
            rendered.prompt,
            rendered.sampling_params,
            request.request_id,
            trace_headers={"traceparent": trace} if trace else None,
            priority=request.policy.priority,
            **rendered.generate_kwargs,
        )
        self._running.add(request.request_id)
        try:
            async with Pump(stream) as outputs:
                yield outputs
        except BaseException:
            # generate() aborts when it is closed, but not if it is cancelled while still handing the request over.
            if not self._dead.is_set():
                await self._runtime.llm.abort(request.request_id)
            raise
        finally:
            self._running.discard(request.request_id)

    async def abort(self, request_id: str) -> bool:
        known = request_id in self._running
        if known and not self._runtime.llm.errored:
            await self._runtime.llm.abort(request_id)
        return known

    async def tokenize(self, request: GenerationRequest) -> tuple[int, ...]:
        try:
            return tuple((await self._render(request)).prompt_token_ids)
        except BackendError:
            raise
        except Exception as exc:
            raise translate(exc, request.request_id) from exc

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


class _Choice:
    """What one choice needs to remember between deltas."""

    def __init__(self, index: int, rendered: Rendered, tokenizer: Any) -> None:
        self.index = index
        self.parser = rendered.parsers[index]
        self.splitter = TokenSplitter(tokenizer, skip_special_tokens=rendered.sampling_params.skip_special_tokens)
        self.tokenizer = tokenizer
        self.top_logprobs: int = rendered.sampling_params.logprobs or 0
        self.names_tool = rendered.names_tool
        self.prompt_tokens = len(rendered.prompt_token_ids)
        self.completion_tokens = 0

    def tokens(self, output: Any) -> Iterator[tuple[str, int | None]]:
        """(text, token id) one by one; an output without tokens (the last text of a stop string) is one piece."""
        if not output.token_ids:
            return iter([(output.text, None)])
        return self.splitter.split(output.text, output.token_ids)


def _deltas(output: Any, choices: list[_Choice]) -> Iterator[EngineDelta]:
    """The deltas of one RequestOutput; its last one carries the request's timings when the request is finished."""
    for position, choice_output in enumerate(output.outputs):
        choice = choices[choice_output.index]
        is_last = output.finished and position == len(output.outputs) - 1
        logprobs = token_logprobs(choice_output, choice.tokenizer, top=choice.top_logprobs)
        count = max(1, len(choice_output.token_ids))
        for at, (text, token_id) in enumerate(choice.tokens(choice_output)):
            finished = choice_output.finish_reason is not None and at == count - 1
            delta = choice.parser.feed(text, token_id, finished=finished)
            if token_id is not None:
                choice.completion_tokens += 1
            reason = _finish_reason(choice_output.finish_reason, choice) if finished else None
            yield dataclasses.replace(
                delta,
                choice_index=choice.index,
                logprobs=logprobs[at : at + 1],
                prompt_tokens=choice.prompt_tokens,
                completion_tokens=choice.completion_tokens,
                reasoning_tokens=choice.parser.reasoning_tokens,
                cached_tokens=output.num_cached_tokens,
                finish_reason=reason,
                stop_reason=choice_output.stop_reason if finished else None,
                timings=_timings(output.metrics) if finished and is_last else None,
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
