# SPDX-License-Identifier: MIT
"""A second LoadModel while requests run: what is refused changes nothing, another model takes the first one's place."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import grpc
import pytest

from chatdelta import Engine, EngineDelta, FinishReason
from chatdelta.testing import ScriptedEngine, Step, Wait, text_script
from localai_proto import backend_pb2 as pb
from tests.support.waiting import until
from tests.vllm_nnrp.doors import chat, open_door, status_of
from vllm_engine import EngineSpec

FIRST = EngineDelta(content="a", completion_tokens=1)
LAST = EngineDelta(content="b", completion_tokens=2, finish_reason=FinishReason.STOP)


class Models:
    """Opens an engine for each load; what happened to them, in order."""

    def __init__(self, *script: Step) -> None:
        self._script = script
        self.engines: dict[str, ScriptedEngine] = {}
        self.happened: list[str] = []

    async def open(self, spec: EngineSpec) -> Engine:
        self.happened.append(f"open {spec.model}")
        engine = self.engines[spec.model] = Recorded(self._script, spec.model, self.happened)
        return engine


class Recorded(ScriptedEngine):
    """Says when it is stopped."""

    def __init__(self, script: tuple[Step, ...], name: str, happened: list[str]) -> None:
        super().__init__(script)
        self._name = name
        self._happened = happened

    async def stop(self) -> None:
        self._happened.append(f"stop {self._name}")
        await super().stop()


async def load(door: Any, model: str, **fields: Any) -> pb.Result:
    result: pb.Result = await door.stub.LoadModel(pb.ModelOptions(Model=model, **fields))
    return result


@pytest.mark.asyncio
async def test_a_stream_that_outlives_the_grace_time_is_aborted_and_the_other_model_serves() -> None:
    models = Models(FIRST, Wait(asyncio.Event()))
    async with open_door(is_loaded=False, open_engine=models.open, drain_s=0.2) as door:
        assert (await load(door, "org/a")).success
        stream = door.stub.PredictStream(chat(ModelIdentity="org/a"))
        await anext(aiter(stream))
        assert (await load(door, "org/b")).success
        assert (await status_of(stream))[0] is grpc.StatusCode.CANCELLED
        assert len(models.engines["org/a"].aborted) == 1
        assert models.happened == ["open org/a", "stop org/a", "open org/b"]
        code, details = await status_of(door.stub.Predict(chat(ModelIdentity="org/a")))
        assert (code, "model identity mismatch" in details) == (grpc.StatusCode.NOT_FOUND, True)
        other = door.stub.PredictStream(chat(ModelIdentity="org/b"))
        assert (await anext(aiter(other))).message == b"a"


@pytest.mark.asyncio
@pytest.mark.parametrize("is_freed", [False, True], ids=["replaced", "freed"])
async def test_nothing_is_left_of_an_engine_that_holds_itself(is_freed: bool) -> None:
    left: list[weakref.ref[Engine]] = []

    async def open_engine(_spec: EngineSpec) -> Engine:
        engine = Knot(text_script("a"))
        left.append(weakref.ref(engine))
        return engine

    async with open_door(is_loaded=False, open_engine=open_engine) as door:
        assert (await load(door, "org/a")).success
        if is_freed:
            await door.stub.Free(pb.HealthMessage())
        else:
            assert (await load(door, "org/b")).success
        assert left[0]() is None
        assert [each() is None for each in left[1:]] == [False] * (len(left) - 1)


class Knot(ScriptedEngine):
    """An engine that only the collector can free."""

    def __init__(self, script: tuple[Step, ...]) -> None:
        super().__init__(script)
        self.itself = self


@pytest.mark.asyncio
async def test_a_stream_within_the_grace_time_comes_to_its_end() -> None:
    gate = asyncio.Event()
    models = Models(FIRST, Wait(gate), LAST)
    async with open_door(is_loaded=False, open_engine=models.open, drain_s=10) as door:
        assert (await load(door, "org/a")).success
        stream = aiter(door.stub.PredictStream(chat()))
        replies = [await anext(stream)]
        loading = asyncio.ensure_future(load(door, "org/b"))
        await until(lambda: door.loader.busy)
        assert (await status_of(door.stub.Predict(chat())))[0] is grpc.StatusCode.FAILED_PRECONDITION
        gate.set()
        replies += [reply async for reply in stream]
        assert b"".join(reply.message for reply in replies) == b"ab"
        assert (await loading).success
        assert models.happened == ["open org/a", "stop org/a", "open org/b"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"model": "/no/such/model"}, "model not found: /no/such/model", id="a missing model"),
        pytest.param({"model": "m.gguf"}, "m.gguf is a GGUF file", id="a GGUF file"),
        pytest.param(
            {"model": "org/a", "LoraAdapter": "/no/such/adapter"}, "LoRA adapter adapter was not found", id="an adapter"
        ),
        pytest.param({"model": "org/b", "LoraAdapter": "/a", "LoraScale": 2}, "a LoRA scale of 2", id="a scale"),
        pytest.param({"model": "org/b", "EngineArgs": "{"}, "EngineArgs is not valid JSON", id="no JSON"),
    ],
)
async def test_a_load_that_is_refused_at_once_leaves_the_loaded_model_and_its_streams(
    fields: dict[str, Any], message: str
) -> None:
    gate = asyncio.Event()
    models = Models(FIRST, Wait(gate), LAST)
    async with open_door(is_loaded=False, open_engine=models.open, drain_s=0) as door:
        assert (await load(door, "org/a")).success
        stream = aiter(door.stub.PredictStream(chat(ModelIdentity="org/a")))
        replies = [await anext(stream)]
        result = await load(door, **fields)
        assert not result.success
        assert message in result.message
        gate.set()
        replies += [reply async for reply in stream]
        assert b"".join(reply.message for reply in replies) == b"ab"
        assert models.happened == ["open org/a"]
