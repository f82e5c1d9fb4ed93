# SPDX-License-Identifier: MIT
"""The backend process with an engine that answers the soak's questions: `python -m tests.soak.scripted_backend FLAGS`.

The question "census" is answered with how many other requests run in the engine, and how many there were in all.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Iterable

from chatdelta import ChatRequest, EngineDelta, GenerationRequest
from chatdelta.testing import ScriptedEngine, Step, text_script
from chatserving import closing
from tests.soak.questions import scripted_answer
from vllm_engine import EngineSpec
from vllm_nnrp.main import main

CENSUS = "census"


class ForgettingEngine(ScriptedEngine):
    """Keeps no list of what it was asked: the memory that grows shall be the server's."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self._served = 0

    def _answer(self, request: GenerationRequest) -> Iterable[Step]:
        assert isinstance(request, ChatRequest)
        if request.body["messages"][-1]["content"] == CENSUS:
            return text_script(f"{len(self.running) - 1} {self._served}")
        return scripted_answer(request.body)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineDelta, None]:
        self._served += 1
        try:
            async with closing(super().generate(request)) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            self.requests.clear()
            self.aborted.clear()


async def open_engine(_spec: EngineSpec) -> ForgettingEngine:
    return ForgettingEngine()


if __name__ == "__main__":
    sys.exit(main(open_engine=open_engine))
