# SPDX-License-Identifier: MIT
"""The real backend process with a scripted engine: `python -m tests.vllm_nnrp_client.scripted_backend FLAGS`.

The last user message chooses the answer; each abort is told on stdout.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Iterable

from chatdelta import BackendFailure, ChatRequest, EngineDelta, FinishReason, GenerationRequest, ToolCallFragment
from chatdelta.testing import Gap, ScriptedEngine, Step, failing_script, text_script
from chatserving import closing
from vllm_engine import EngineSpec
from vllm_nnrp.conformance.scripted import scripted_info
from vllm_nnrp.main import main

PARIS = ("The", " capital of France", " is Paris.")


def endless() -> Iterable[Step]:
    count = 0
    while True:
        count += 1
        yield EngineDelta(content=f"{count} ", prompt_tokens=3, completion_tokens=count)
        yield Gap(0.02)


def weather(prompt_tokens: int = 5) -> tuple[Step, ...]:
    """Reasoning, one tool call in pieces."""
    call = (
        ToolCallFragment(0, "call-1", "get_weather"),
        ToolCallFragment(0, arguments='{"city": "'),
        ToolCallFragment(0, arguments='Paris"}'),
    )
    deltas = [EngineDelta(reasoning="\nLook", prompt_tokens=5, completion_tokens=1)]
    deltas.append(EngineDelta(reasoning=" it up.\n", prompt_tokens=5, completion_tokens=2))
    deltas += [
        EngineDelta(tool_calls=(piece,), prompt_tokens=5, completion_tokens=2 + n) for n, piece in enumerate(call)
    ]
    return (*deltas, EngineDelta(prompt_tokens=5, completion_tokens=5, finish_reason=FinishReason.TOOL_CALLS))


def script(request: GenerationRequest) -> Iterable[Step]:
    assert isinstance(request, ChatRequest)
    last = request.body["messages"][-1]
    if last["role"] == "tool":
        return text_script("So it is ", str(last["content"]), ".")
    match last["content"]:
        case "count":
            return endless()
        case "weather":
            return weather()
        case "fail":
            return failing_script(
                BackendFailure("the engine lost it"), EngineDelta(content="half", completion_tokens=1)
            )
        case "history":
            return text_script(" | ".join(f"{m['role']}: {m['content']}" for m in request.body["messages"]))
        case _:
            return text_script(*PARIS, prompt_tokens=7)


class TellingEngine(ScriptedEngine):
    """Says on stdout what was aborted."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineDelta, None]:
        try:
            async with closing(super().generate(request)) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            if request.request_id in self.aborted:
                print("aborted", flush=True)


async def open_engine(spec: EngineSpec) -> TellingEngine:
    return TellingEngine(script, info=scripted_info([spec.model]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], open_engine=open_engine))
