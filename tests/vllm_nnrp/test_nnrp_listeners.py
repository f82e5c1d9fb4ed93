# SPDX-License-Identifier: MIT
"""The process with NNRP on every transport: what it announces, renews, retries, refuses and leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from localai_proto import backend_pb2 as pb
from tests.support import certificates
from tests.support.process import START_S, Run, client, started
from tests.support.sdk_client import SdkClient
from tests.support.waiting import until

SCRIPTED = ("-m", "tests.vllm_nnrp.scripted_backend")
MODEL = ("--addr=127.0.0.1:0", "--model=org/m")
SCHEMES = ("nnrp", "nnrps", "ws", "wss", "quic")


@asynccontextmanager
async def running(tmp_path: Path, *arguments: str, **env: str) -> AsyncIterator[tuple[Run, dict[str, Any]]]:
    """Started, with a server certificate, and ready."""
    certificate, key = certificates.server().save(tmp_path, "server", certificates.intermediate())
    files = (f"--nnrp-cert={certificate}", f"--nnrp-key={key}")
    log = tmp_path / "log"
    async with started(tmp_path, *MODEL, *files, *arguments, python=SCRIPTED, log=log, **env) as run:
        yield run, await run.ready()


async def stop(run: Run) -> int:
    run.process.send_signal(signal.SIGTERM)
    return await asyncio.wait_for(run.process.wait(), START_S)


def opens_a_session(url: str) -> None:
    """Blocks."""
    trust = certificates.authority().der if url.partition("://")[0] in ("nnrps", "wss", "quic") else None
    with SdkClient.connect_url(url, trust) as client:
        client.open_session().close()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def shown(port: int, trust: certificates.Certificate = certificates.authority()) -> bytes:  # noqa: B008 - cached
    """The certificate that the listener shows, if it is trusted."""
    context = ssl.create_default_context(cadata=trust.pem.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return certificate


@pytest.mark.asyncio
async def test_every_transport_at_once_is_announced_and_answers(tmp_path: Path) -> None:
    path = tmp_path / "nnrp.sock"
    urls = [*(f"{scheme}://127.0.0.1:0" for scheme in SCHEMES), f"unix://{path}"]
    async with running(tmp_path, *(f"--nnrp={url}" for url in urls)) as (run, ready):
        assert [url.partition(":")[0] for url in ready["nnrp_all"]] == [*SCHEMES, "unix"]
        assert ready["nnrp"] == ready["nnrp_all"][0]
        assert len({port_of(url) for url in ready["nnrp_all"][:5]} - {0}) == 5
        for url in ready["nnrp_all"]:
            await asyncio.to_thread(opens_a_session, url)
        said = (tmp_path / "log").read_text()
        assert f"ready grpc={ready['grpc']} " + " ".join(f"nnrp={url}" for url in ready["nnrp_all"]) in said
        assert await stop(run) == 0
    assert not path.exists()


@pytest.mark.asyncio
async def test_a_hangup_renews_the_certificate_and_ends_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, "--nnrp=nnrps://127.0.0.1:0") as (run, ready):
        port = port_of(ready["nnrp"])
        assert await shown(port) == certificates.server().der
        before = run.children()
        assert all(_blocks_hangup(pid) for pid in before)  # a closing terminal tells them too

        renewed = certificates.make("localhost", certificates.authority())
        renewed.save(tmp_path, "server")
        run.process.send_signal(signal.SIGHUP)
        await until(lambda: "the certificate was read again" in (tmp_path / "log").read_text())
        assert await shown(port) == renewed.der

        (tmp_path / "server.pem").write_text("broken")
        run.process.send_signal(signal.SIGHUP)
        await until(lambda: "the certificate stays as it is" in (tmp_path / "log").read_text())
        assert await shown(port) == renewed.der
        assert run.children() == before
        assert await stop(run) == 0


def _blocks_hangup(pid: int) -> bool:
    fields = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return bool(int(fields["SigBlk"], 16) & 1 << (signal.SIGHUP - 1))


@pytest.mark.asyncio
async def test_only_clients_with_a_certificate_are_served(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificates.authority().pem)
    async with running(tmp_path, "--nnrp=nnrps://127.0.0.1:0", f"--nnrp-client-ca={ca}") as (run, ready):
        context = ssl.create_default_context(cadata=certificates.authority().pem.decode())
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # where the client's own handshake fails
        connect = {"host": "127.0.0.1", "port": port_of(ready["nnrp"]), "ssl": context, "server_hostname": "localhost"}
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(**connect)  # type: ignore[arg-type]
        context.load_cert_chain(*certificates.client().save(tmp_path, "client"))
        _, writer = await asyncio.open_connection(**connect)  # type: ignore[arg-type]
        writer.transport.abort()
        assert await stop(run) == 0


@pytest.mark.asyncio
async def test_what_the_environment_asks_for_is_tried_until_it_opens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief:
        taken = f"nnrp://127.0.0.1:{thief.getsockname()[1]}"
        free = f"unix://{tmp_path}/nnrp.sock"
        async with running(tmp_path, VLLM_NNRP_LISTEN=f"{taken},{free}") as (run, ready):
            assert ready["nnrp_all"] == [free]
            await asyncio.to_thread(opens_a_session, free)
            thief.close()
            await until(lambda: _ready(run)["nnrp_all"] == [taken, free], timeout_s=START_S)
            await asyncio.to_thread(opens_a_session, taken)
            assert await stop(run) == 0


def _ready(run: Run) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(run.ready_file.read_text())
    return content


@pytest.mark.asyncio
async def test_a_stop_during_a_load_leaves_no_socket_behind(tmp_path: Path) -> None:
    path = tmp_path / "nnrp.sock"
    async with started(
        tmp_path, "--addr=127.0.0.1:0", python=SCRIPTED, log=tmp_path / "log", VLLM_NNRP_LISTEN=f"unix://{path}"
    ) as run:
        ready = await run.ready()
        async with client(ready["grpc"]) as stub:
            assert (await stub.LoadModel(pb.ModelOptions(Model="org/m"))).success
            assert path.exists()
            before = set(run.children())
            second = stub.LoadModel(pb.ModelOptions(Model="org/slow-load"))
            await until(lambda: set(run.children()) - before, timeout_s=START_S)
            assert await stop(run) == 0
            second.cancel()
    assert not path.exists()


REFUSED: dict[str, tuple[Callable[[Path], list[str]], int, str]] = {
    "a file that is no socket": (
        lambda folder: [f"--nnrp=unix://{folder}/precious"], 1, "precious: a file that is no socket is there"),
    "no such folder": (lambda folder: [f"--nnrp=unix://{folder}/no/x"], 1, "/no/x: No such file or directory"),
    "no such group": (lambda folder: [f"--nnrp=unix://{folder}/x?group=nobodys"], 1, "there is no group 'nobodys'"),
    "one of several": (
        lambda folder: [f"--nnrp=unix://{folder}/x", "--nnrp=nnrp://192.0.2.1:1", "--nnrp-allow-plaintext"], 1,
        "cannot listen for NNRP on nnrp://192.0.2.1:1: Cannot assign requested address"),
    "another's key": (
        lambda folder: ["--nnrp=nnrps://localhost", f"--nnrp-key={folder}/other.key"], 2,
        "other.key is not the key of the certificate in "),
}  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("name", REFUSED)
async def test_what_a_flag_asks_for_in_vain_ends_the_process_in_words(name: str, tmp_path: Path) -> None:
    arguments, code, words = REFUSED[name]
    (tmp_path / "precious").write_text("precious")
    certificates.client().save(tmp_path, "other")
    certificate, key = certificates.server().save(tmp_path, "server")
    files = (f"--nnrp-cert={certificate}", f"--nnrp-key={key}")
    async with started(tmp_path, *MODEL, *files, *arguments(tmp_path), python=SCRIPTED, VLLM_NNRP_TOKEN="t") as run:
        _, err = await run.output()
    assert run.process.returncode == code
    assert words in err.strip().splitlines()[-1]
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "x").exists()


@pytest.mark.asyncio
async def test_a_killed_backends_socket_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "nnrp.sock"
    async with running(tmp_path, f"--nnrp=unix://{path}") as (run, _):
        run.process.kill()
        await run.process.wait()
        assert path.exists()
    os.unlink(tmp_path / "ready.json")
    async with running(tmp_path, f"--nnrp=unix://{path}") as (run, ready):
        await asyncio.to_thread(opens_a_session, ready["nnrp"])
        assert path.stat().st_mode & 0o777 == 0o600
        assert await stop(run) == 0
