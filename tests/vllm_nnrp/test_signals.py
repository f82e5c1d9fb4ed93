# SPDX-License-Identifier: MIT
"""What signals do to the process: its streams get their grace, its engine's processes never stay."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from localai_proto import backend_pb2 as pb
from tests.support.process import Run, all_gone, client, started
from tests.support.waiting import until
from tests.vllm_nnrp.doors import chat, status_of

SCRIPTED = ("-m", "tests.vllm_nnrp.scripted_backend")
ADDRESS = "--addr=127.0.0.1:0"
ALONE = (ADDRESS, "--model=org/m")
HEALTH = pb.HealthMessage()
TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
LONG_S = "600"
SOON_S = 30.0  # two busy cores; far from the grace time


async def ends_soon(run: Run) -> tuple[int | None, str]:
    """The exit code and what was said on stderr; none of the engine's processes is left."""
    children = run.children()
    started_s = time.monotonic()
    _, err = await run.output()
    assert time.monotonic() - started_s < SOON_S
    assert all_gone(children)
    assert "Traceback" not in err
    return run.process.returncode, err


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [TERM, INT])
@pytest.mark.parametrize(
    ("arguments", "env"), [(("--grace-s=0.5",), {}), ((), {"VLLM_NNRP_GRACE_S": "0.5"})], ids=["flag", "environment"]
)
async def test_streams_have_their_grace_then_are_ended(
    tmp_path: Path, number: signal.Signals, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    async with started(tmp_path, *ALONE, *arguments, python=SCRIPTED, log=None, **env) as run:
        ready = await run.ready()
        async with client(ready["grpc"]) as stub:
            stream = aiter(stub.PredictStream(chat()))
            assert (await anext(stream)).message == b"a"
            signalled_s = time.monotonic()
            run.process.send_signal(number)
            assert (await status_of(stream))[0] is grpc.StatusCode.CANCELLED
            assert time.monotonic() - signalled_s > 0.4
        assert (await ends_soon(run))[0] == 0


@pytest.mark.asyncio
async def test_a_stream_that_ends_within_the_grace_is_whole_and_nothing_new_is_accepted(tmp_path: Path) -> None:
    async with started(tmp_path, ADDRESS, "--model=org/brief", f"--grace-s={LONG_S}", python=SCRIPTED) as run:
        ready = await run.ready()
        async with client(ready["grpc"]) as stub:
            call = stub.PredictStream(chat())
            stream = aiter(call)
            assert (await anext(stream)).message == b"a"
            run.process.send_signal(TERM)
            await until(lambda: not run.ready_file.exists(), timeout_s=SOON_S)
            await status_of(stub.Predict(chat()))
            assert b"".join([reply.message async for reply in stream]) == b"b"
            assert await call.code() is grpc.StatusCode.OK
        assert (await ends_soon(run))[0] == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("first", [TERM, INT, HUP])
@pytest.mark.parametrize("second", [TERM, INT])
async def test_a_second_signal_ends_it_at_once(tmp_path: Path, first: signal.Signals, second: signal.Signals) -> None:
    with at_start(signal.SIG_DFL):
        process = started(tmp_path, *ALONE, f"--grace-s={LONG_S}", python=SCRIPTED)
        async with process as run:
            ready = await run.ready()
            async with client(ready["grpc"]) as stub:
                stream = aiter(stub.PredictStream(chat()))
                await anext(stream)
                run.process.send_signal(first)
                await until(lambda: not run.ready_file.exists(), timeout_s=SOON_S)
                run.process.send_signal(second)
                await status_of(stream)
            assert (await ends_soon(run))[0] == 128 + second


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [TERM, INT])
async def test_a_signal_during_a_load_does_not_wait_for_it(tmp_path: Path, number: signal.Signals) -> None:
    async with started(tmp_path, ADDRESS, python=SCRIPTED) as run:
        ready = await run.ready()
        async with client(ready["grpc"]) as stub:
            loading = stub.LoadModel(pb.ModelOptions(Model="org/slow-load"))
            await until(run.children, timeout_s=SOON_S)
            assert (await stub.Health(HEALTH)).message == b"OK"
            run.process.send_signal(number)
            await status_of(loading)
        assert (await ends_soon(run))[0] == 0


# SIGHUP


@contextmanager
def at_start(disposition: signal.Handlers) -> Iterator[None]:
    """What a process that is started meanwhile inherits for SIGHUP; `nohup` makes it SIG_IGN."""
    before = signal.signal(HUP, disposition)
    try:
        yield
    finally:
        signal.signal(HUP, before)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        pytest.param(ALONE, {}, id="standing alone"),
        pytest.param((ADDRESS,), {"VLLM_NNRP_SIGHUP": "stop"}, id="told to"),
    ],
)
async def test_a_hangup_ends_it_in_order(tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str]) -> None:
    with at_start(signal.SIG_DFL):
        async with started(tmp_path, *arguments, python=SCRIPTED, log=None, **env) as run:
            await run.ready()
            run.process.send_signal(HUP)
            assert (await ends_soon(run))[0] == 0


@pytest.mark.asyncio
@pytest.mark.inherits_signals
@pytest.mark.parametrize(
    ("arguments", "env", "inherited"),
    [
        pytest.param((ADDRESS,), {}, signal.SIG_DFL, id="waiting for LoadModel"),
        pytest.param(ALONE, {"VLLM_NNRP_SIGHUP": "ignore"}, signal.SIG_DFL, id="told to"),
        pytest.param(ALONE, {}, signal.SIG_IGN, id="under nohup"),
        pytest.param(ALONE, {"VLLM_NNRP_SIGHUP": "stop"}, signal.SIG_IGN, id="under nohup whatever it is told"),
    ],
)
async def test_a_hangup_is_ignored_by_it_and_its_children(
    tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str], inherited: signal.Handlers
) -> None:
    with at_start(inherited):
        async with started(tmp_path, *arguments, python=SCRIPTED, log=None, **env) as run:
            ready = await run.ready()
            async with client(ready["grpc"]) as stub:
                assert (await stub.LoadModel(pb.ModelOptions(Model="org/m"))).success
                everyone = [run.process.pid, *run.children()]
                assert len(everyone) == 2
                for pid in everyone:
                    os.kill(pid, HUP)
                # It would have come before this signal, which is not ignored.
                assert (await stub.Health(HEALTH)).message == b"OK"
                assert not any(all_gone([pid]) for pid in everyone)
            run.process.send_signal(TERM)
            assert (await ends_soon(run))[0] == 0


if sys.platform != "linux":
    pytest.fail("these tests read /proc")
