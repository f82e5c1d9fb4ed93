# SPDX-License-Identifier: MIT
"""An engine client that plays given tokens through vLLM's own output path. No engine process, no weights.

The scheduler's part (end of sequence, stop token ids, token limit) is done here as vLLM's `check_stop` does it; the
detokenizer, stop strings, n > 1 and the merging of deltas are vLLM's `OutputProcessor` and `RequestOutputCollector`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import vllm.engine.protocol  # noqa: F401  # before vllm.renderers: 0.18 imports that in a circle
from vllm.renderers import renderer_from_config
from vllm.renderers.inputs.preprocess import extract_prompt_components
from vllm.v1.engine import EngineCoreOutput, FinishReason
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.engine.parallel_sampling import ParentRequest


@dataclass(frozen=True, slots=True)
class Playback:
    """What the next requests generate: token ids per choice, and how many of them each delta holds.

    A choice ends where vLLM would end it; one that is not ended by its last token ends there with "length". After
    `delta_sizes` are used up the last of them is repeated; the last choice's ids serve any further choice.
    """

    choices: Sequence[Sequence[int]] = ((),)
    delta_sizes: Sequence[int] = (1,)

    def sizes(self) -> Iterator[int]:
        yield from self.delta_sizes
        yield from repeat(self.delta_sizes[-1])


class ScriptedClient:
    """The part of AsyncLLM that vLLM's serving objects and `VllmEngine` use. Set `playback` before a request."""

    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.renderer = renderer_from_config(vllm_config)
        self.input_processor = InputProcessor(vllm_config, self.renderer)
        self.io_processor: Any = None  # for models with a processor of their own; the server of 0.18 looks for it
        self.output_processor = OutputProcessor(self.renderer.tokenizer, log_stats=False)
        self.playback = Playback()
        self.generate_calls: list[Mapping[str, Any]] = []  # the keyword arguments of every generate()
        self.errored = False
        self.dead_error = RuntimeError("the scripted client has died")

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        self.generate_calls.append({"sampling_params": sampling_params, **kwargs})
        request, queue, playing = self._submit(prompt, sampling_params, request_id)
        finished = False
        try:
            for size in self.playback.sizes():
                self._step(playing, size)
                await asyncio.sleep(0)
                output = queue.get_nowait()
                if output is not None:
                    finished = output.finished
                    yield output
                if finished:
                    return
        finally:
            if not finished:
                await self.abort(request.request_id, internal=True)

    def _submit(self, prompt: Any, sampling_params: Any, request_id: str) -> tuple[Any, Any, list[ScriptedChoice]]:
        """The engine's request, the collector of its outputs, and its choices."""
        request = self.input_processor.process_inputs(
            request_id, prompt, sampling_params, supported_tasks=("generate",)
        )
        text, _, _ = extract_prompt_components(self.model_config, prompt)
        self.input_processor.assign_request_id(request)
        queue = RequestOutputCollector(sampling_params.output_kind, request.request_id)
        return request, queue, self._add(request, text, queue)

    def _add(self, request: Any, text: str | None, queue: Any) -> list[ScriptedChoice]:
        """As AsyncLLM.add_request does: one child request per choice."""
        params = request.params
        if params.n == 1:
            self.output_processor.add_request(request, text, None, 0, queue)
            return [ScriptedChoice(request.request_id, params, self._script(0))]
        parent = ParentRequest(request)
        playing = []
        for index in range(params.n):
            child = copy.copy(request)
            child.request_id, child.sampling_params = parent.get_child_info(index)
            self.output_processor.add_request(child, text, parent, index, queue)
            playing.append(ScriptedChoice(child.request_id, child.sampling_params, self._script(index)))
        return playing

    def _script(self, index: int) -> Sequence[int]:
        return self.playback.choices[min(index, len(self.playback.choices) - 1)]

    def _step(self, playing: Sequence[ScriptedChoice], size: int) -> None:
        """`size` tokens of every choice; the collector merges them into one delta, as for a late consumer."""
        for _ in range(size):
            for choice in playing:
                if choice.request_id in self.output_processor.request_states:
                    self.output_processor.process_outputs([choice.next_output()])

    async def abort(self, request_id: str | Iterable[str], internal: bool = False) -> None:
        request_ids = (request_id,) if isinstance(request_id, str) else request_id
        self.output_processor.abort_requests(request_ids, internal)

    async def is_tracing_enabled(self) -> bool:
        return False

    async def notify_kv_transfer_request_rejected(self, request_id: str, *args: Any, **kwargs: Any) -> None: ...

    def shutdown(self, timeout: float | None = None) -> None: ...


class ScriptedChoice:
    """The scheduler's view of one choice being played."""

    def __init__(self, request_id: str, params: Any, token_ids: Sequence[int]) -> None:
        self.request_id = request_id
        self._params = params
        self._token_ids = token_ids
        self._position = 0

    def next_output(self) -> Any:
        if not self._token_ids:
            return EngineCoreOutput(self.request_id, [], finish_reason=FinishReason.STOP)
        token_id = self._token_ids[self._position]
        self._position += 1
        reason, stop_reason = self._ending(token_id)
        return EngineCoreOutput(self.request_id, [token_id], finish_reason=reason, stop_reason=stop_reason)

    def _ending(self, token_id: int) -> tuple[Any, int | None]:
        params = self._params
        if self._position >= params.min_tokens:
            if token_id == params.eos_token_id:
                return FinishReason.STOP, None
            if token_id in (params.stop_token_ids or ()):
                return FinishReason.STOP, token_id
        if self._position >= params.max_tokens or self._position == len(self._token_ids):
            return FinishReason.LENGTH, None
        return None, None
