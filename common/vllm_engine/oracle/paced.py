# SPDX-License-Identifier: MIT
"""A scripted engine client whose tokens come at a steady pace, for measurements: it notes when, in the system's clock.

Its outputs reach a consumer as AsyncLLM's do: one loop hands a batch of all that is due to the `OutputProcessor`, which
puts each into its request's collector, and wakes who waits there. A request is known by its `seed`.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from vllm_engine.oracle.client import Playback, ScriptedChoice, ScriptedClient
from vllm_engine.oracle.serving import scripted_config
from vllm_engine.spec import EngineSpec

BATCH = 128  # vLLM's VLLM_V1_OUTPUT_PROC_CHUNK_SIZE: outputs that are processed without a pause
SCRIPT_TOKENS = 32_768
MIN_WORD = 3  # characters, the space among them
GOLDEN = 0.618034  # spreads the phases of consecutive seeds evenly


_Due = tuple[float, int, ScriptedChoice, list[float]]  # when, a tie-breaker, of whom, where it is noted


@dataclass(frozen=True, slots=True)
class Pace:
    """`interval_s` between two tokens of a request; 0: the next one when the last has been taken.

    All requests get theirs together, as from one step of an engine, unless they are `spread` over the interval.
    """

    interval_s: float = 0.02
    spread: bool = False


class PacedClient(ScriptedClient):
    """Plays one token for ever; a request ends at its `max_tokens`.

    `emitted` and `aborted` are of the running system's monotonic clock, in seconds, by seed; `after_abort` counts the
    outputs that a request's consumer was given after its abort, the one that says `abort` left out.
    """

    def __init__(self, vllm_config: Any) -> None:
        super().__init__(vllm_config)
        token_id, self.token_text = _word(self.renderer.get_tokenizer(), self.model_config.get_vocab_size())
        self.playback = Playback(([token_id] * SCRIPT_TOKENS,))
        self.pace = Pace()
        self.emitted: dict[int, list[float]] = {}
        self.aborted: dict[int, float] = {}
        self.after_abort = 0
        self._seeds: dict[str, int] = {}  # by request id, the caller's and our own
        self._due: list[_Due] = []
        self._numbers = count()
        self._wake = asyncio.Event()
        self._has_aborted = asyncio.Condition()
        self._loop_task: asyncio.Task[None] | None = None
        self.is_running = True

    def forget(self) -> None:
        """Begin the notes anew; requests that run go on unnoted."""
        self.emitted, self.aborted, self.after_abort = {}, {}, 0

    def generate(self, prompt: Any, sampling_params: Any, request_id: str, **kwargs: Any) -> AsyncGenerator[Any, None]:
        if not self.pace.interval_s:
            return super().generate(prompt, sampling_params, request_id, **kwargs)
        return self._paced(prompt, sampling_params, request_id)

    async def _paced(self, prompt: Any, sampling_params: Any, request_id: str) -> AsyncGenerator[Any, None]:
        request, queue, playing = self._submit(prompt, sampling_params, request_id)
        seed = sampling_params.seed or 0
        self._seeds[request_id] = self._seeds[request.request_id] = seed
        self._start(playing[0], seed)
        finished = False
        try:
            while not finished:
                output = queue.get_nowait() or await queue.get()
                finished = output.finished
                if not finished and seed in self.aborted:
                    self.after_abort += 1
                yield output
        except (asyncio.CancelledError, GeneratorExit):
            await self.abort(request.request_id, internal=True)
            raise
        finally:
            del self._seeds[request_id], self._seeds[request.request_id]

    def _start(self, choice: ScriptedChoice, seed: int) -> None:
        pace, now = self.pace, time.monotonic()
        phase = pace.interval_s * (seed * GOLDEN % 1.0 if pace.spread else 0.0)
        steps = int((now - phase) / pace.interval_s) + 1
        times = self.emitted.setdefault(seed, [])
        heapq.heappush(self._due, (steps * pace.interval_s + phase, next(self._numbers), choice, times))
        self._wake.set()
        if self._loop_task is None:
            self._loop_task = asyncio.get_running_loop().create_task(self._play())

    async def _play(self) -> None:
        """The output handler of AsyncLLM, with the clock in the place of the engine."""
        while True:
            if not self._due:
                self._wake.clear()
                await self._wake.wait()
            now = time.monotonic()
            if self._due[0][0] > now:
                await self._until(self._due[0][0] - now)
                continue
            batch: list[_Due] = []
            while self._due and self._due[0][0] <= now and len(batch) < BATCH:
                batch.append(heapq.heappop(self._due))
            self._emit(batch)
            await asyncio.sleep(0)

    async def _until(self, wait_s: float) -> None:
        """Sleep, less long where a new request is due before."""
        self._wake.clear()
        timer = asyncio.get_running_loop().call_later(wait_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _emit(self, batch: Iterable[_Due]) -> None:
        outputs = []
        now = time.monotonic()
        for due, number, choice, times in batch:
            if choice.request_id not in self.output_processor.request_states:
                continue  # finished or aborted
            times.append(now)
            outputs.append(choice.next_output())
            heapq.heappush(self._due, (due + self.pace.interval_s, number, choice, times))
        self.output_processor.process_outputs(outputs)

    async def abort(self, request_id: str | Iterable[str], internal: bool = False) -> None:
        request_ids = (request_id,) if isinstance(request_id, str) else list(request_id)
        for each in request_ids:
            if each in self._seeds:
                self.aborted.setdefault(self._seeds[each], time.monotonic())
        await super().abort(request_ids, internal)
        async with self._has_aborted:
            self._has_aborted.notify_all()

    async def all_aborted(self, count: int) -> None:
        """Wait until so many have been aborted since forget()."""
        async with self._has_aborted:
            await self._has_aborted.wait_for(lambda: len(self.aborted) >= count)

    # What vLLM's HTTP server asks of an engine besides

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    async def check_health(self) -> None: ...

    async def do_log_stats(self) -> None: ...


def paced_client(spec: EngineSpec) -> PacedClient:
    """On a model folder that needs no weights, with room for answers of SCRIPT_TOKENS."""
    return PacedClient(scripted_config(Path(spec.model), max_model_len=SCRIPT_TOKENS))


def _word(tokenizer: Any, vocab_size: int) -> tuple[int, str]:
    """A token whose text is a space and letters, also in a row of itself, so that texts tell their tokens' number.

    Raises ValueError if the vocabulary has none.
    """
    for token_id in range(vocab_size):
        text = tokenizer.decode([token_id])
        is_word = len(text) >= MIN_WORD and text[0] == " " and text[1:].isascii() and text[1:].isalpha()
        if is_word and tokenizer.decode([token_id] * 3) == text * 3:
            return token_id, text
    raise ValueError("no token of this vocabulary is a word")
