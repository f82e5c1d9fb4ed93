# SPDX-License-Identifier: MIT
"""The other RPCs over a real grpc.aio server, wrong input, and what the port survives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from chatdelta import BackendFailure, Engine, EngineDelta
from chatdelta.testing import ScriptedEngine, Wait, text_script
from localai_proto import backend_pb2 as pb
from localai_proto import backend_pb2_grpc
from tests.support.waiting import until
from tests.vllm_nnrp.doors import IDENTITY, chat, open_door, status_of
from vllm_engine import EngineSpec
from vllm_nnrp.grpc_door import open_grpc
from vllm_nnrp.grpc_door.server import BindFailed

HEALTH = pb.HealthMessage()
SERVED = {
    *("Health", "LoadModel", "Predict", "PredictStream", "Free", "Status", "TokenizeString", "Detokenize"),
    *("Embedding", "Rerank", "Score", "GetMetrics", "ModelMetadata"),
}


class Openings:
    """An engine opener that counts, waits for its cue, and can fail."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.opened: list[ScriptedEngine] = []
        self.specs: list[EngineSpec] = []
        self.go = asyncio.Event()
        self.error = error

    async def __call__(self, spec: EngineSpec) -> Engine:
        self.specs.append(spec)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        self.opened.append(ScriptedEngine(text_script("hi")))
        return self.opened[-1]


@pytest.mark.asyncio
async def test_health_and_status_answer_during_a_load() -> None:
    openings = Openings()
    async with open_door(is_loaded=False, open_engine=openings) as door:
        assert (await door.stub.Status(HEALTH)).state == pb.StatusResponse.UNINITIALIZED
        load = door.stub.LoadModel(pb.ModelOptions(Model="org/m"))
        await until(lambda: openings.specs)
        assert (await door.stub.Health(HEALTH)).message == b"OK"
        status = await door.stub.Status(HEALTH)
        assert status.state == pb.StatusResponse.BUSY
        assert status.memory.total == sum(status.memory.breakdown.values()) > 1_000_000
        openings.go.set()
        assert (await load).success
        assert (await door.stub.Status(HEALTH)).state == pb.StatusResponse.READY


@pytest.mark.asyncio
async def test_status_is_busy_while_a_request_runs() -> None:
    async with open_door((Wait(asyncio.Event()),)) as door:
        call = door.stub.Predict(chat())
        await until(lambda: door.engine.running)
        assert (await door.stub.Status(HEALTH)).state == pb.StatusResponse.BUSY
        call.cancel()
        await door.idle()
        assert (await door.stub.Status(HEALTH)).state == pb.StatusResponse.READY


@pytest.mark.asyncio
async def test_the_same_model_again_is_done_at_once_and_another_replaces_it() -> None:
    openings = Openings()
    openings.go.set()
    async with open_door(is_loaded=False, open_engine=openings) as door:
        for name in ("org/a", "org/a", "org/b"):
            assert (await door.stub.LoadModel(pb.ModelOptions(Model=name))).success
        assert [spec.model for spec in openings.specs] == ["org/a", "org/b"]
        assert [engine.stopped for engine in openings.opened] == [True, False]
        assert (await door.stub.Predict(chat(ModelIdentity="org/b"))).message == b"hi"


@pytest.mark.asyncio
async def test_a_load_whose_caller_hangs_up_goes_on() -> None:
    openings = Openings()
    async with open_door(is_loaded=False, open_engine=openings) as door:
        load = door.stub.LoadModel(pb.ModelOptions(Model="org/m"))
        await until(lambda: openings.specs)
        load.cancel()
        openings.go.set()
        await until(door.host.loaded.is_set)
        assert (await door.stub.LoadModel(pb.ModelOptions(Model="org/m"))).success
        assert len(openings.specs) == 1


@pytest.mark.asyncio
async def test_a_free_whose_caller_hangs_up_still_stops_the_engine() -> None:
    async with open_door((EngineDelta(content="a", completion_tokens=1), Wait(asyncio.Event()))) as door:
        stream = aiter(door.stub.PredictStream(chat()))
        await anext(stream)
        free = door.stub.Free(HEALTH)
        await until(lambda: door.loader.busy)
        free.cancel()
        await until(lambda: door.engine.stopped)
        assert len(door.engine.aborted) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"Model": "/no/such/model"}, "model not found: /no/such/model", id="unknown path"),
        pytest.param({"Model": "m.gguf"}, "m.gguf is a GGUF file", id="gguf"),
        pytest.param({}, "no model was named", id="no name"),
        pytest.param({"Model": "org/m", "EngineArgs": "[1]"}, "EngineArgs must be a JSON object", id="args no object"),
        pytest.param({"Model": "org/m", "Options": ["nnrp:http://x"]}, "is no NNRP address", id="bad nnrp address"),
    ],
)
async def test_a_load_that_cannot_work_says_why_and_leaves_the_process_well(
    options: dict[str, Any], words: str
) -> None:
    openings = Openings()
    openings.go.set()
    async with open_door(is_loaded=False, open_engine=openings) as door:
        result = await door.stub.LoadModel(pb.ModelOptions(**options))
        assert not result.success
        assert words in result.message
        assert not openings.specs
        assert (await door.stub.LoadModel(pb.ModelOptions(Model="org/m"))).success


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (BackendFailure("unknown tool parser 'x'; known: hermes"), "unknown tool parser 'x'; known: hermes"),
        (RuntimeError("Engine core initialization failed"), "ValueError: no CPU kernels for this dtype"),
    ],
)
async def test_a_failed_load_tells_its_root_cause_in_one_line(error: Exception, message: str) -> None:
    error.__cause__ = ValueError("no CPU kernels\n  for this dtype")
    openings = Openings(error=error)
    openings.go.set()
    async with open_door(is_loaded=False, open_engine=openings) as door:
        result = await door.stub.LoadModel(pb.ModelOptions(Model="org/m"))
        assert (result.success, result.message) == (False, message)
        assert (await door.stub.Status(HEALTH)).state == pb.StatusResponse.UNINITIALIZED


@pytest.mark.asyncio
@pytest.mark.parametrize("rpc", ["Predict", "PredictStream", "TokenizeString"])
async def test_without_a_model_requests_are_refused_in_the_words_core_reloads_on(rpc: str) -> None:
    async with open_door(is_loaded=False) as door:
        code, text = await status_of(getattr(door.stub, rpc)(chat()))
        assert (code, "model not loaded" in text) == (grpc.StatusCode.FAILED_PRECONDITION, True)


@pytest.mark.asyncio
@pytest.mark.parametrize("rpc", ["Predict", "PredictStream", "TokenizeString"])
async def test_a_request_for_another_model_is_refused_in_cores_words(rpc: str) -> None:
    async with open_door(text_script("a")) as door:
        code, text = await status_of(getattr(door.stub, rpc)(chat(ModelIdentity="org/other")))
        assert (code, "model identity mismatch" in text) == (grpc.StatusCode.NOT_FOUND, True)
        for identity in ("", IDENTITY):
            assert (await door.stub.Predict(chat(ModelIdentity=identity))).message == b"a"


@pytest.mark.asyncio
async def test_tokenize_takes_a_prompt_or_messages() -> None:
    async with open_door() as door:
        by_prompt = await door.stub.TokenizeString(pb.PredictOptions(Prompt="abc"))
        assert (by_prompt.length, list(by_prompt.tokens)) == (3, [97, 98, 99])
        assert (await door.stub.TokenizeString(chat())).length == len("hello")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (pb.PredictOptions(), grpc.StatusCode.INVALID_ARGUMENT, "neither Prompt nor Messages"),
        (chat(Tools="{"), grpc.StatusCode.INVALID_ARGUMENT, "Tools is not valid JSON"),
        (chat(LogitBias='{"a":1}'), grpc.StatusCode.INVALID_ARGUMENT, "LogitBias"),
        (chat(Images=["aGk="]), grpc.StatusCode.UNIMPLEMENTED, "Images"),
        (chat(Tools="[" * 5_000_000), grpc.StatusCode.INVALID_ARGUMENT, "Tools is nested deeper"),
        (chat(Tools="[" * 10_000_000), grpc.StatusCode.INVALID_ARGUMENT, "Tools is larger"),
    ],
)
async def test_wrong_input_gets_its_own_error_and_the_process_lives(
    options: pb.PredictOptions, code: grpc.StatusCode, words: str
) -> None:
    async with open_door(text_script("a")) as door:
        for rpc in ("Predict", "PredictStream"):
            given, text = await status_of(getattr(door.stub, rpc)(options))
            assert (given, words in text) == (code, True), text
        assert (await door.stub.Predict(chat())).message == b"a"
        assert len(door.engine.requests) == 1


@pytest.mark.asyncio
async def test_every_other_rpc_is_unimplemented_with_a_reason() -> None:
    methods = {m.name: m for m in pb.DESCRIPTOR.services_by_name["Backend"].methods}
    refused = {name: m for name, m in methods.items() if name not in SERVED and not m.client_streaming}
    assert len(refused) > 30
    async with open_door() as door:
        for name, method in refused.items():
            request = getattr(pb, method.input_type.name)()
            code, text = await status_of(getattr(door.stub, name)(request))
            assert code is grpc.StatusCode.UNIMPLEMENTED
            reason = "this backend serves text generation, scoring, embeddings and reranking only"
            assert text == f"{name}: {reason}"


@pytest.mark.asyncio
async def test_over_the_limit_of_requests_one_is_refused_and_the_others_go_on() -> None:
    async with open_door((Wait(asyncio.Event()),), max_operations=1) as door:
        call = door.stub.Predict(chat())
        await until(lambda: door.engine.running)
        code, _ = await status_of(door.stub.Predict(chat()))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        call.cancel()
        await door.idle()


@pytest.mark.asyncio
async def test_garbage_on_the_port_hurts_nobody() -> None:
    async with open_door(text_script("a")) as door:
        address = door.server.address
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4096, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 512):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(garbage)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
        assert (await door.stub.Predict(chat())).message == b"a"


@pytest.mark.asyncio
async def test_a_taken_port_is_an_error_that_names_it() -> None:
    async with open_door() as door:
        with pytest.raises(BindFailed, match=f"127.0.0.1:{door.server.address.port}"):
            await open_grpc(door.server.address, backend_pb2_grpc.BackendServicer(), token=None)


@pytest.mark.asyncio
async def test_logprobs_are_cumulative_and_on_the_last_reply() -> None:
    from chatdelta import FinishReason, TokenLogprob

    def script(_request: object) -> Iterator[EngineDelta]:
        for count, text in enumerate("ab", start=1):
            token = TokenLogprob(count, text, text.encode(), -0.5)
            yield EngineDelta(content=text, completion_tokens=count, logprobs=(token,))
        yield EngineDelta(completion_tokens=2, finish_reason=FinishReason.STOP)

    async with open_door(script) as door:
        replies = [reply async for reply in door.stub.PredictStream(chat(Logprobs=1))]
        assert [bool(reply.logprobs) for reply in replies] == [False, False, True]
        content = json.loads(replies[-1].logprobs)["content"]
        assert [entry["token"] for entry in content] == ["a", "b"]
        assert (await door.stub.Predict(chat(Logprobs=1))).logprobs == replies[-1].logprobs


@pytest.mark.asyncio
async def test_a_model_file_is_used_where_it_exists(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "tokenizer.json").touch()
    openings = Openings()
    openings.go.set()
    async with open_door(is_loaded=False, open_engine=openings) as door:
        assert (await door.stub.LoadModel(pb.ModelOptions(Model="org/m", ModelFile=str(tmp_path)))).success
        assert openings.specs[0].model == str(tmp_path)
        assert openings.specs[0].names == ("org/m",)
