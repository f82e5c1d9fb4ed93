# SPDX-License-Identifier: MIT
"""The whole process with the real engine, from outside: its start, wrong input of every kind, and its engine's death.

The tests share one process and run in the order of this file; the last one kills it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from nnrp.core import MessageType

from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.real_engine.clients import envelope, predict_options
from tests.real_engine.process import HEALTH, Backend, backend_process
from tests.real_engine.test_load import ENDLESS, LONG
from tests.support.process import all_gone, started
from tests.support.sdk_client import SdkClient
from tests.support.waiting import until
from tests.vllm_nnrp.doors import status_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
HEALTH_BOUND_S = 5.0  # the promise is 1 s on a machine that does nothing else; the measured times are printed


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backend]:
    async with backend_process(tmp_path_factory.mktemp("process"), "--nnrp=nnrp://127.0.0.1:0") as backend:
        yield backend


WRONG_LOADS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown model path": ({"ModelFile": "", "Model": "/no/such/model"}, "model not found: /no/such/model"),
    "a GGUF path": ({"ModelFile": "", "Model": "model.gguf"}, "model.gguf is a GGUF file"),
    "a name that is no model": ({"ModelFile": "", "Model": "nomodel"}, "nomodel is n"),
    "an unknown tool parser": (
        {"Options": ["tool_parser:hermse"]},
        "unknown tool parser 'hermse'; did you mean hermes?",
    ),
    "an unknown reasoning parser": (
        {"Options": ["reasoning_parser:qwen33"]},
        "unknown reasoning parser 'qwen33'; did you mean qwen3?",
    ),
    "an unknown engine argument": (
        {"EngineArgs": '{"max_model_length": 100}'},
        "unknown engine argument 'max_model_length'; did you mean max_model_len",
    ),
    "engine arguments that are no JSON": ({"EngineArgs": "{"}, "EngineArgs"),
}


@pytest.mark.parametrize("wrong", WRONG_LOADS)
async def test_a_wrong_load_says_why_and_leaves_nothing(backend: Backend, wrong: str) -> None:
    fields, message = WRONG_LOADS[wrong]
    result = await backend.load(**fields)
    assert not result.success
    assert message in result.message
    assert (await backend.stub.Health(HEALTH)).message == b"OK"
    assert await backend.state() == pb.StatusResponse.UNINITIALIZED
    assert not backend.engine_cores()


async def test_a_load_that_fails_in_the_engine_process_says_its_root_cause(backend: Backend, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(backend.model, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    result = await backend.load(ModelFile=str(broken))
    assert not result.success
    assert result.message.startswith("SafetensorError: Error while deserializing header")
    assert await backend.state() == pb.StatusResponse.UNINITIALIZED
    assert not backend.engine_cores()


async def test_health_answers_at_once_and_all_through_the_load(backend: Backend, figure: Figure) -> None:
    figure(f"Health first answered {backend.health_after_s:.2f} s after the process was started")
    assert backend.health_after_s < HEALTH_BOUND_S
    load = asyncio.ensure_future(backend.load())
    started_s, latencies, states = time.monotonic(), [], set()
    while not load.done():
        asked_s = time.monotonic()
        assert (await backend.stub.Health(HEALTH, timeout=HEALTH_BOUND_S)).message == b"OK"
        latencies.append(time.monotonic() - asked_s)
        states.add(await backend.state())
        await asyncio.wait([load], timeout=0.5)
    result = await load
    assert result.success, result.message
    figure(
        f"load {time.monotonic() - started_s:.1f} s; Health meanwhile: {len(latencies)} calls, median "
        f"{statistics.median(latencies) * 1e3:.1f} ms, worst {max(latencies) * 1e3:.0f} ms"
    )
    assert pb.StatusResponse.BUSY in states
    assert await backend.state() == pb.StatusResponse.READY
    await until(lambda: "nnrp" in backend.run.ready_file.read_text())
    await backend.answers()


async def test_the_same_load_again_is_done_at_once(backend: Backend) -> None:
    before = backend.engine_cores()
    assert (await backend.load()).success
    assert backend.engine_cores() == before


async def test_status_tells_whether_something_runs_and_the_memory_of_both_sides(backend: Backend) -> None:
    status: pb.StatusResponse = await backend.stub.Status(HEALTH)
    assert status.state == pb.StatusResponse.READY
    assert min(status.memory.breakdown["backend"], status.memory.breakdown["engine"]) > 100_000_000
    call = backend.stub.PredictStream(predict_options(LONG, Tokens=3000, IgnoreEOS=True))
    await anext(aiter(call))
    assert await backend.state() == pb.StatusResponse.BUSY
    call.cancel()
    async with asyncio.timeout(30):
        while await backend.state() != pb.StatusResponse.READY:
            pass


def body(**changes: Any) -> dict[str, Any]:
    whole = {"model": "memorised", "messages": [{"role": "user", "content": "Say hello."}]} | changes
    return {key: value for key, value in whole.items() if value is not None}


def wrapped(body: Any, **changes: Any) -> bytes:
    whole = {"schema_version": "openai-compatible/1", "operation": "chat.completions.create", "body": body}
    return json.dumps(whole | changes).encode()


WRONG_ENVELOPES = {
    "no JSON": (b"\xff\x00 no json", "invalid_envelope"),
    "a wrong schema_version": (wrapped(body(), schema_version="openai-compatible/9"), "unsupported_schema_version"),
    "another operation": (wrapped(body(), operation="responses.create"), "unsupported_operation"),
    "no model": (wrapped(body(model=None)), "missing_model"),
    "another model": (wrapped(body(model="gpt-9")), "unsupported_model"),
    "no messages": (wrapped(body(messages=None)), "missing_messages"),
    "10 MB of nested JSON": (b"[" * 5_000_000 + b"]" * 5_000_000, "invalid_body"),
    "a temperature below zero": (wrapped(body(temperature=-1)), "invalid_body"),
    "a field of the wrong type": (wrapped(body(max_tokens="many")), "invalid_body"),
    "a prompt that is too long": (
        wrapped(body(messages=[{"role": "user", "content": "hello " * 9000}])),
        "context_length_exceeded",
    ),
}


@pytest.mark.parametrize("wrong", WRONG_ENVELOPES)
async def test_a_wrong_envelope_says_why(backend: Backend, wrong: str) -> None:
    payload, code = WRONG_ENVELOPES[wrong]

    def scenario() -> dict[str, Any]:
        with SdkClient.connect(backend.nnrp_port) as sdk:
            session = sdk.open_session()
            (terminal,) = session.collect(session.submit(payload), timeout_s=60)
            assert terminal.message_type is MessageType.RESULT_PUSH
            event: dict[str, Any] = json.loads(terminal.payload)
            return event

    event = await asyncio.to_thread(scenario)
    assert event["type"] == "response.error"
    assert event["error"]["code"] == code
    assert event["error"]["message"]
    await backend.answers()


@pytest.mark.parametrize("door", ["grpc", "nnrp"])
@pytest.mark.parametrize(
    "garbage",
    [b"\x00" * 4096, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", random.Random(0).randbytes(65536)],
    ids=["zeros", "http", "noise"],
)
async def test_garbage_on_a_port_costs_its_sender_only(backend: Backend, door: str, garbage: bytes) -> None:
    port = int(backend.grpc_address.rpartition(":")[2]) if door == "grpc" else backend.nnrp_port

    def send() -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
            peer.sendall(garbage)
            try:
                while peer.recv(65536):
                    pass
            except (ConnectionError, TimeoutError):
                pass

    await asyncio.to_thread(send)
    await backend.answers()


async def test_a_port_already_taken_is_said_and_ends_the_second_process(backend: Backend, tmp_path: Path) -> None:
    async with started(tmp_path, f"--addr={backend.grpc_address}") as second:
        _, errors = await second.output()
        assert second.process.returncode not in (0, None)
        assert f"cannot listen for gRPC on {backend.grpc_address}" in errors
    await backend.answers()


async def test_an_engine_killed_in_mid_stream_ends_everything_with_the_right_error(backend: Backend) -> None:
    (core,) = backend.engine_cores()
    children = backend.run.children()
    call = backend.stub.PredictStream(predict_options(LONG, Tokens=3000, IgnoreEOS=True))
    await anext(aiter(call))
    streaming = asyncio.Event()
    loop = asyncio.get_running_loop()

    def scenario() -> dict[str, Any]:
        sdk = SdkClient.connect(backend.nnrp_port)  # never closed: its server goes away
        session = sdk.open_session()
        for event in session.events(session.submit(envelope(LONG, **ENDLESS)), timeout_s=60):
            loop.call_soon_threadsafe(streaming.set)
            if event.is_terminal:
                assert event.message_type is MessageType.RESULT_PUSH
                last: dict[str, Any] = json.loads(event.payload)
                return last
        raise AssertionError("no terminal")

    over_nnrp = asyncio.ensure_future(asyncio.to_thread(scenario))
    await asyncio.wait_for(streaming.wait(), 60)
    os.kill(core, signal.SIGKILL)
    assert (await status_of(call))[0] is grpc.StatusCode.INTERNAL
    assert await backend.state() == pb.StatusResponse.ERROR
    event = await over_nnrp
    assert event["type"] == "response.error"
    assert event["error"]["code"] == "engine_dead"
    assert await asyncio.wait_for(backend.run.process.wait(), 60) != 0
    await until(lambda: all_gone(children), timeout_s=10)


if sys.platform != "linux":
    pytest.fail("these tests read /proc")
