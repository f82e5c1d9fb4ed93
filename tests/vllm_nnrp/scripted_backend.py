# SPDX-License-Identifier: MIT
"""The real process with a scripted engine, for tests of its life: `python -m tests.vllm_nnrp.scripted_backend ARGS…`.

The model's name says what it does: `org/slow-load` never comes to its end loading, `org/fail` fails to load, `org/die`
dies after its first token, `org/brief` answers "a" and a moment later "b", anything else answers "a" and then waits for
ever. Each engine has a child process.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

from chatdelta import BackendFailure, Engine, EngineDelta, FinishReason
from chatdelta.requests import GenerationRequest
from chatdelta.testing import Gap, ScriptedEngine, Step, Wait
from vllm_engine import EngineSpec
from vllm_nnrp.main import main

BRIEFLY_S = 0.5


class EngineWithChild(ScriptedEngine):
    """Like vLLM: work is in a child process, and stop() ends it."""

    def __init__(self, name: str) -> None:
        super().__init__(self._answer)
        self._name = name
        self._child = start_child()

    def _answer(self, _request: GenerationRequest) -> Iterator[Step]:
        yield EngineDelta(content="a", completion_tokens=1)
        if self._name.endswith("/die"):
            yield Gap(0.2)
            self.kill()
        if self._name.endswith("/brief"):
            yield Gap(BRIEFLY_S)
            yield EngineDelta(content="b", completion_tokens=2, finish_reason=FinishReason.STOP)
            return
        yield Wait(asyncio.Event())

    async def stop(self) -> None:
        self._child.kill()
        self._child.wait()
        await super().stop()


def start_child() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


async def open_scripted(spec: EngineSpec) -> Engine:
    if spec.model.endswith("/fail"):
        raise BackendFailure("no kernel for this dtype")
    if spec.model.endswith("/slow-load"):
        start_child()
        await asyncio.to_thread(_never)
    return EngineWithChild(spec.model)


def _never() -> None:
    import time

    time.sleep(600)


if __name__ == "__main__":
    sys.exit(main(open_engine=open_scripted))
