# SPDX-License-Identifier: MIT
"""Many streams at once, and streams that end early: nothing is lost, mixed up or left running."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle, islice

import grpc
import pytest
from nnrp.core import MessageType

from tests.conftest import Figure
from tests.real_engine.backend import RealBackend
from tests.real_engine.clients import ask_grpc, drain, envelope, predict_options, read_answer
from tests.real_engine.test_answers import BY_NAME, check
from tests.support.sdk_client import SdkClient
from tests.support.waiting import until
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS = 32
LONG = BY_NAME["long_answer"]
ENDLESS = {"max_tokens": 3000, "ignore_eos": True}  # far longer than a test waits


async def test_32_streams_over_grpc_are_complete_and_in_order(backend: RealBackend) -> None:
    conversations = list(islice(cycle(CONVERSATIONS), STREAMS))
    backend.counts.peak = 0
    answers = await asyncio.gather(*(ask_grpc(backend, conversation) for conversation in conversations))
    for answer, conversation in zip(answers, conversations, strict=True):
        check(answer, conversation)
    assert backend.counts.peak > STREAMS // 2
    await backend.counts.idle()


async def test_32_streams_over_nnrp_are_complete_and_in_order(backend: RealBackend) -> None:
    conversations = list(islice(cycle(CONVERSATIONS), STREAMS))
    backend.counts.peak = 0

    def scenario() -> None:
        with SdkClient.connect(backend.nnrp.port) as client:
            session = client.open_session(max_in_flight=STREAMS)
            operations = [session.submit(envelope(conversation)) for conversation in conversations]
            for operation, conversation in zip(operations, conversations, strict=True):
                check(read_answer(session.collect(operation, timeout_s=120)), conversation)

    await asyncio.to_thread(scenario)
    assert backend.counts.peak > STREAMS // 2
    await backend.counts.idle()


@pytest.mark.parametrize("reads", [True, False], ids=["while reading", "while not reading"])
async def test_cancel_over_grpc_reaches_the_scheduler(backend: RealBackend, figure: Figure, *, reads: bool) -> None:
    call = backend.stub.PredictStream(predict_options(LONG, Tokens=3000, IgnoreEOS=True))
    if reads:
        assert await call.read() is not grpc.aio.EOF
    await backend.counts.busy()
    started_s = time.monotonic()
    call.cancel()
    await backend.counts.idle()
    figure(f"grpc: nothing runs {time.monotonic() - started_s:.3f} s after a cancel")
    await until(lambda: backend.host.in_flight == 0)
    with pytest.raises(asyncio.CancelledError):
        await call.read()


@pytest.mark.parametrize("reads", [True, False], ids=["while reading", "while not reading"])
@pytest.mark.parametrize("word", ["cancel", "abort"])
async def test_cancel_over_nnrp_reaches_the_scheduler(
    backend: RealBackend, figure: Figure, word: str, *, reads: bool
) -> None:
    loop = asyncio.get_running_loop()

    def wait_for(state: str) -> None:
        waiting = backend.counts.busy() if state == "busy" else backend.counts.idle()
        asyncio.run_coroutine_threadsafe(waiting, loop).result(60)

    def scenario() -> None:
        with SdkClient.connect(backend.nnrp.port) as client:
            session = client.open_session()
            operation = session.submit(envelope(LONG, **ENDLESS))
            if reads:
                session.wait_for(MessageType.PARTIAL_RESULT)
            wait_for("busy")
            started_s = time.monotonic()
            (session.cancel if word == "cancel" else session.abort)(operation)
            wait_for("idle")
            figure(f"nnrp: nothing runs {time.monotonic() - started_s:.3f} s after {word.upper()}")
            frames = drain(session)
            drops = [frame for frame in frames if frame.message_type is MessageType.RESULT_DROP_REASON]
            assert len(drops) == 1
            assert frames[-1] is drops[0], "an event came after the terminal"
            assert drops[0].metadata.drop_reason_code == 3
            assert json.loads(drops[0].payload)["type"] == "response.cancelled"

    await asyncio.to_thread(scenario)
    await until(lambda: backend.host.in_flight == 0)


KILLED = {
    "grpc": """
import sys
import grpc
from localai_proto import backend_pb2_grpc
from tests.real_engine.clients import predict_options
from tests.real_engine.test_load import LONG
stub = backend_pb2_grpc.BackendStub(grpc.insecure_channel(sys.argv[1]))
for reply in stub.PredictStream(predict_options(LONG, Tokens=3000, IgnoreEOS=True)):
    print("streaming", flush=True)
""",
    "nnrp": """
import sys
from tests.real_engine.clients import envelope
from tests.real_engine.test_load import ENDLESS, LONG
from tests.support.sdk_client import SdkClient
client = SdkClient.connect(int(sys.argv[1]))
session = client.open_session()
for event in session.events(session.submit(envelope(LONG, **ENDLESS))):
    print("streaming", flush=True)
""",
}


@pytest.mark.parametrize("door", KILLED)
async def test_a_killed_clients_request_leaves_the_scheduler(backend: RealBackend, figure: Figure, door: str) -> None:
    target = backend.grpc_address if door == "grpc" else str(backend.nnrp.port)
    async with client_process(KILLED[door], target) as process:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"streaming\n"
        await backend.counts.busy()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        started_s = time.monotonic()
        await backend.counts.idle()
        figure(f"{door}: nothing runs {time.monotonic() - started_s:.3f} s after the client was killed")
    await until(lambda: backend.host.in_flight == 0)


@asynccontextmanager
async def client_process(code: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
