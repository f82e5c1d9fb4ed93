# SPDX-License-Identifier: MIT
"""`tool_choice: required` on the demo model, which never learnt to call tools: the engine's constraint does it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.real_engine.backend import RealBackend, real_backend
from tests.real_engine.bodies import completed_over_nnrp, events_over_nnrp

pytestmark = pytest.mark.asyncio(loop_scope="module")
CALLS_PER_DOOR = 10
BOUND_TOKENS = 300  # a call needs 50 to 80: JSON allows any space between its parts, and the model likes it
CUT_TOKENS = 30  # behind the name, before the end of the shortest arguments
QUESTION = "Make the kitchen light red."
ROOMS = ("kitchen", "bedroom", "hall")
LABEL_CHARS = 8
SCHEMA = {
    "type": "object",
    "properties": {
        "room": {"type": "string", "enum": list(ROOMS)},
        "label": {"type": "string", "maxLength": LABEL_CHARS},
    },
    "required": ["room", "label"],
    "additionalProperties": False,
}
FUNCTION = {"name": "set_light", "description": "Switch a lamp.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo() -> AsyncIterator[RealBackend]:
    from vllm_nnrp.models.demo import build_demo_model

    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    async with real_backend(build_demo_model(), reasoning_parser=None, max_model_len=1024) as backend:
        yield backend


@dataclass(frozen=True)
class Call:
    call_id: str
    name: str
    arguments: str

    @property
    def is_valid(self) -> bool:
        """As SCHEMA says."""
        arguments = json.loads(self.arguments)
        return (
            self.name == "set_light"
            and list(arguments) == ["room", "label"]
            and arguments["room"] in ROOMS
            and isinstance(arguments["label"], str)
            and len(arguments["label"]) <= LABEL_CHARS
        )


def body(seed: int, max_tokens: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": TOOLS,
        "tool_choice": "required",
        "temperature": 1.0,
        "seed": seed,
        "max_tokens": max_tokens,
    }


def options(seed: int, max_tokens: int) -> pb.PredictOptions:
    return pb.PredictOptions(
        Messages=[pb.Message(role="user", content=QUESTION)],
        UseTokenizerTemplate=True,
        Tools=json.dumps(TOOLS),
        ToolChoice='"required"',
        Temperature=1.0,
        TopP=1,
        Seed=seed,
        Tokens=max_tokens,
    )


async def call_over_nnrp(demo: RealBackend, seed: int) -> list[Call]:
    choice = await completed_over_nnrp(demo, **body(seed, BOUND_TOKENS))
    assert choice["finish_reason"] == "tool_calls"
    assert not choice["message"]["content"]
    calls = choice["message"]["tool_calls"]
    return [Call(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]


async def call_over_grpc(demo: RealBackend, seed: int) -> list[Call]:
    reply: pb.Reply = await demo.stub.Predict(options(seed, BOUND_TOKENS))
    (delta,) = reply.chat_deltas
    assert not reply.message
    assert not delta.content
    assert [call.index for call in delta.tool_calls] == list(range(len(delta.tool_calls)))
    return [Call(call.id, call.name, call.arguments) for call in delta.tool_calls]


async def test_required_gives_a_valid_call_every_time(demo: RealBackend, figure: Figure) -> None:
    started_s = time.monotonic()
    over_nnrp = [call_over_nnrp(demo, seed) for seed in range(CALLS_PER_DOOR)]
    over_grpc = [call_over_grpc(demo, CALLS_PER_DOOR + seed) for seed in range(CALLS_PER_DOOR)]
    answers = await asyncio.gather(*over_nnrp, *over_grpc)
    valid = [calls for calls in answers if calls and all(call.is_valid for call in calls)]
    figure(f"required: {len(valid)} of {len(answers)} valid, in {time.monotonic() - started_s:.1f} s")
    assert len(valid) == len(answers) == 2 * CALLS_PER_DOOR
    ids = [call.call_id for calls in answers for call in calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert len({call.arguments for calls in answers for call in calls}) > CALLS_PER_DOOR, "the seeds make no difference"


async def test_over_nnrp_a_cut_call_is_an_error_and_never_completed(demo: RealBackend) -> None:
    events = await events_over_nnrp(demo, **body(1, CUT_TOKENS))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds.count("tool_call.started") == kinds.count("tool_call.error") == 1
    assert "tool_call.completed" not in kinds
    error = events[kinds.index("tool_call.error")]
    assert error["error"]["code"] == "length"
    assert kinds[-1] == "completed"
    (choice,) = events[-1]["body"]["choices"]
    assert choice["finish_reason"] == "length"
    assert events[-1]["body"]["usage"]["completion_tokens"] == CUT_TOKENS


async def test_over_grpc_a_cut_call_shows_that_the_tokens_are_spent(demo: RealBackend) -> None:
    """The contract has no finish reason: core says "length" when the count reaches Tokens."""
    reply: pb.Reply = await demo.stub.Predict(options(1, CUT_TOKENS))
    (delta,) = reply.chat_deltas
    (call,) = delta.tool_calls
    assert (call.name, reply.tokens) == ("set_light", CUT_TOKENS)
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(call.arguments)
