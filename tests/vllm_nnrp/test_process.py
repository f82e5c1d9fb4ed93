# SPDX-License-Identifier: MIT
"""The process from outside: how it starts, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest

from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.support.process import BACKEND, START_S, Run, all_gone, client
from tests.support.process import started as start
from tests.vllm_nnrp.doors import chat, status_of

SCRIPTED = ("-m", "tests.vllm_nnrp.scripted_backend")
HEALTH = pb.HealthMessage()
HEALTH_BOUND_S = 5.0  # the promise is 1 s on a machine that does nothing else; the measured time is printed


def started(
    tmp_path: Path, *arguments: str, python: tuple[str, ...] = SCRIPTED, **env: str
) -> AbstractAsyncContextManager[Run]:
    """The scripted process, or what `python` runs."""
    return start(tmp_path, *arguments, python=python, log=None, **env)


async def load(stub: Any, model: str, *options: str) -> None:
    result = await stub.LoadModel(pb.ModelOptions(Model=model, Options=options))
    assert result.success, result.message


@pytest.mark.asyncio
async def test_health_answers_soon_after_the_start_and_sigterm_ends_it_well(tmp_path: Path, figure: Figure) -> None:
    port = await _free_port()
    started_s = time.monotonic()
    async with started(tmp_path, f"--addr=127.0.0.1:{port}", python=(str(BACKEND),)) as run:
        async with client(f"127.0.0.1:{port}") as stub:
            reply = await stub.Health(HEALTH, wait_for_ready=True, timeout=START_S)
            first_s = time.monotonic() - started_s
            times = [await _timed_health(stub) for _ in range(20)]
        figure(f"Health {first_s:.2f} s after the start, then median {statistics.median(times) * 1000:.1f} ms")
        assert reply.message == b"OK"
        assert first_s < HEALTH_BOUND_S
        assert await run.ready() == {"pid": run.process.pid, "grpc": f"127.0.0.1:{port}", "nnrp": None, "nnrp_all": []}
        run.process.send_signal(signal.SIGTERM)
        out, err = await run.output()
    assert (run.process.returncode, out) == (0, f"ready grpc=127.0.0.1:{port}\n")
    assert "Traceback" not in err
    assert not run.ready_file.exists()


async def _timed_health(stub: Any) -> float:
    before_s = time.monotonic()
    await stub.Health(HEALTH)
    return time.monotonic() - before_s


async def _free_port() -> int:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


@pytest.mark.asyncio
async def test_port_0_takes_free_ports_and_the_ready_file_names_both_doors(tmp_path: Path) -> None:
    async with started(tmp_path, "--addr", "127.0.0.1:0", "--nnrp", "nnrp://127.0.0.1:0", "--model", "org/m") as run:
        ready = await run.ready()
        host, port = ready["nnrp"].removeprefix("nnrp://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        async with client(ready["grpc"]) as stub:
            assert (await stub.Status(HEALTH)).state == pb.StatusResponse.READY
        children = run.children()
        assert children
        run.process.send_signal(signal.SIGINT)
        out, _ = await run.output()
    assert run.process.returncode == 0
    assert out == f"ready grpc={ready['grpc']} nnrp={ready['nnrp']}\n"
    assert all_gone(children)


@pytest.mark.asyncio
async def test_nnrp_opens_with_the_first_load_that_asks_for_it_and_stays(tmp_path: Path) -> None:
    async with started(tmp_path, "--addr=127.0.0.1:0") as run:
        ready = await run.ready()
        assert ready["nnrp"] is None
        async with client(ready["grpc"]) as stub:
            await load(stub, "org/m", "nnrp:nnrp://127.0.0.1:0")
            opened = json.loads(run.ready_file.read_text())["nnrp"]
            assert opened.startswith("nnrp://127.0.0.1:")
            assert (await stub.Free(HEALTH)).success
            await load(stub, "org/other", "nnrp:nnrp://127.0.0.1:0")
            assert json.loads(run.ready_file.read_text())["nnrp"] == opened
            refused = await stub.LoadModel(pb.ModelOptions(Model="org/m", Options=["nnrp:nnrp://0.0.0.0:0"]))
            assert (refused.success, "VLLM_NNRP_TOKEN" in refused.message) == (False, True)


@pytest.mark.asyncio
async def test_an_nnrp_address_of_the_environment_that_is_taken_does_not_stop_grpc(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    taken = f"nnrp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, started(tmp_path, "--addr=127.0.0.1:0", VLLM_NNRP_LISTEN=taken) as run:
        ready = await run.ready()
        async with client(ready["grpc"]) as stub:
            await load(stub, "org/m")
            assert (await stub.Health(HEALTH)).message == b"OK"
        run.process.send_signal(signal.SIGTERM)
        _, err = await run.output()
    assert run.process.returncode == 0
    assert f"cannot listen for NNRP on {taken}: Address already in use; it is tried again" in err


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param(["--foo"], 2, "unrecognized arguments: --foo", id="unknown flag"),
        pytest.param(["--addr", "nowhere"], 2, "'nowhere' is no address", id="bad address"),
        pytest.param(["--nnrp", "nnrp://0.0.0.0:1"], 2, "set VLLM_NNRP_TOKEN", id="open nnrp"),
        pytest.param(["--model", "/no/such/model"], 1, "model not found: /no/such/model", id="unknown model"),
        pytest.param(["--model", "org/fail"], 1, "no kernel for this dtype", id="a load that fails"),
        pytest.param(["--model", "org/m", "--nnrp", "TAKEN"], 1, "cannot listen for NNRP on", id="nnrp port taken"),
        pytest.param(["--addr", "TAKEN"], 1, "cannot listen for gRPC on", id="grpc port taken"),
    ],
)
async def test_what_cannot_be_done_is_said_in_the_last_line(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    taken = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    wanted = [text.replace("TAKEN", f"nnrp://{taken}" if "--nnrp" in arguments else taken) for text in arguments]
    defaults = [] if "--addr" in arguments else ["--addr=127.0.0.1:0"]
    async with server, started(tmp_path, *defaults, *wanted) as run:
        _, err = await run.output()
    assert run.process.returncode == code
    assert words in err.strip().splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.asyncio
async def test_the_size_of_other_backends_thread_pools_limits_nothing(tmp_path: Path) -> None:
    env = {"PYTHON_GRPC_MAX_WORKERS": "1"}
    async with started(tmp_path, "--addr=127.0.0.1:0", "--model=org/m", "--grace-s=0", python=SCRIPTED, **env) as run:
        ready = await run.ready()
        async with client(ready["grpc"]) as stub:
            streams = [aiter(stub.PredictStream(chat())) for _ in range(32)]
            first = await asyncio.gather(*(anext(stream) for stream in streams))  # none of them ends by itself
            assert [reply.message for reply in first] == [b"a"] * 32
            assert (await stub.Health(HEALTH)).message == b"OK"


@pytest.mark.asyncio
async def test_token_and_message_size_are_those_of_the_environment(tmp_path: Path) -> None:
    env = {"LOCALAI_GRPC_AUTH_TOKEN": "s3cret", "VLLM_NNRP_MAX_MESSAGE_MIB": "1"}
    async with (
        started(tmp_path, "--addr=127.0.0.1:0", "--model=org/brief", python=SCRIPTED, **env) as run,
        client((await run.ready())["grpc"]) as stub,
    ):
        token = [("authorization", "Bearer s3cret")]
        assert (await status_of(stub.Health(HEALTH)))[0] is grpc.StatusCode.UNAUTHENTICATED
        assert (await stub.Health(HEALTH, metadata=token)).message == b"OK"
        large = pb.PredictOptions(Prompt="a" * 1024 * 1024)
        assert (await status_of(stub.Predict(large, metadata=token)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.Predict(chat(), metadata=token)).message == b"ab"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("env", "code"),
    [({}, grpc.StatusCode.NOT_FOUND), ({"VLLM_NNRP_CHECK_IDENTITY": "false"}, grpc.StatusCode.OK)],
    ids=["by default", "switched off"],
)
async def test_identity_is_checked_unless_that_is_switched_off(
    tmp_path: Path, env: dict[str, str], code: grpc.StatusCode
) -> None:
    async with (
        started(tmp_path, "--addr=127.0.0.1:0", "--model=org/brief", python=SCRIPTED, **env) as run,
        client((await run.ready())["grpc"]) as stub,
    ):
        assert await stub.Predict(chat(ModelIdentity="org/other")).code() is code


@pytest.mark.asyncio
async def test_the_engines_death_is_shown_then_ends_the_process(tmp_path: Path) -> None:
    async with started(tmp_path, "--addr=127.0.0.1:0", "--model=org/die") as run:
        ready = await run.ready()
        children = run.children()
        async with client(ready["grpc"]) as stub:
            code, _ = await status_of(stub.PredictStream(chat()))
            assert code is grpc.StatusCode.INTERNAL
            assert (await stub.Status(HEALTH)).state == pb.StatusResponse.ERROR
        _, err = await run.output()
    assert run.process.returncode == 1
    assert err.strip().splitlines()[-1] == "vllm-nnrp: the engine has died"
    assert all_gone(children)


@pytest.mark.asyncio
async def test_a_python_that_lacks_the_project_is_told_how_to_install_it(tmp_path: Path) -> None:
    async with started(tmp_path, python=("-I", "-S", str(BACKEND))) as run:
        _, err = await run.output()
    assert run.process.returncode == 1
    (line,) = err.strip().splitlines()
    assert "make install" in line
