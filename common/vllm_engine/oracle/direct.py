# SPDX-License-Identifier: MIT
"""The engine without any door: `AsyncLLM.generate` looped over in the engine's own process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chatdelta import ChatRequest, Origin
from vllm_engine.engine import VllmEngine


class Direct:
    """Runs requests on a VllmEngine's vLLM client, past all that is ours but the rendering of the prompt."""

    def __init__(self, engine: VllmEngine) -> None:
        self._llm = engine.llm
        self._runtime: Any = engine._runtime
        self._number = 0

    async def run(self, bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """All at once: the tokens they generated, the seconds until the last, and until the first of each."""
        self._number += 1
        requests = [
            ChatRequest(f"direct-{self._number}-{index}", body, Origin(door="bench"))
            for index, body in enumerate(bodies)
        ]
        begun = time.monotonic()
        answers = await asyncio.gather(*map(self._generate, requests))
        return {
            "tokens": sum(tokens for tokens, _ in answers),
            "seconds": time.monotonic() - begun,
            "first_s": [first - begun for _, first in answers],
        }

    async def _generate(self, request: ChatRequest) -> tuple[int, float]:
        rendered = await self._runtime.render(request)
        tokens, first = 0, 0.0
        async for output in self._llm.generate(
            rendered.prompt, rendered.sampling_params, request.request_id, **rendered.generate_kwargs
        ):
            tokens += len(output.outputs[0].token_ids)
            first = first or time.monotonic()
        return tokens, first


class Aborts:
    """When an engine client was told to abort, by the system's monotonic clock in seconds."""

    def __init__(self, llm: Any) -> None:
        self.times: list[float] = []
        self._abort = llm.abort
        llm.abort = self._noted

    async def _noted(self, request_id: str | Iterable[str], internal: bool = False) -> None:
        self.times.append(time.monotonic())
        await self._abort(request_id, internal)
