# SPDX-License-Identifier: MIT
"""NNRP inside a real `vllm serve`: one process, one engine, the same chat over HTTP and over NNRP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import memorised_model_path
from tests.support.process import all_gone, environment
from tests.support.sdk_client import SdkClient
from tests.support.waiting import until
from vllm_nnrp.processes import descendants

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_S = 300.0  # two busy cores
MODEL = "memorised"
QUESTION = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 32}


@dataclass(frozen=True)
class Server:
    """`process` runs vLLM's own API server, with our door in it."""

    process: asyncio.subprocess.Process
    http_port: int
    nnrp_port: int
    ready_file: Path
    log: Path


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@asynccontextmanager
async def vllm_serve(folder: Path, model: Path, *arguments: str, plugins: str = "nnrp") -> AsyncIterator[Server]:
    port, ready_file, log = free_port(), folder / "ready.json", folder / "serve.log"
    variables = {
        "VLLM_PLUGINS": plugins,
        "VLLM_NNRP_LISTEN": "nnrp://127.0.0.1:0",
        "VLLM_NNRP_READY_FILE": str(ready_file),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [
        *("-m", "vllm_engine.command_line", "serve", str(model), f"--served-model-name={MODEL}", "--enforce-eager"),
        *("--host=127.0.0.1", f"--port={port}", "--max-model-len=1024", "--enable-auto-tool-choice"),
        *("--tool-call-parser=hermes", "--reasoning-parser=qwen3", *arguments),
    ]
    # An engine of this test process has named our media connector, which a bare vLLM does not have.
    clean = {name: value for name, value in environment({}).items() if name != "VLLM_MEDIA_CONNECTOR"}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=clean | variables, stdout=output, stderr=output
        )
    children: list[int] = []
    try:
        await until(lambda: ready_file.exists() or process.returncode is not None, timeout_s=START_S)
        assert process.returncode is None, log.read_text()[-3000:]
        nnrp_port = int(json.loads(ready_file.read_text())["nnrp"].rsplit(":", 1)[1])
        yield Server(process, port, nnrp_port, ready_file, log)
    finally:
        children = descendants(process.pid)
        for pid in (*children, process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()


def http(port: int, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def is_up(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
        return True
    return False


def nnrp(port: int, body: dict[str, Any]) -> Any:
    """The terminal event."""
    envelope = {"schema_version": "openai-compatible/1", "operation": "chat.completions.create", "body": body}
    with SdkClient.connect(port) as client:
        session = client.open_session()
        events = session.collect(session.submit(json.dumps(envelope).encode()), timeout_s=120)
        return json.loads(events[-1].payload)


async def test_one_server_answers_over_http_and_over_nnrp(tmp_path: Path) -> None:
    async with vllm_serve(tmp_path, memorised_model_path()) as server:
        while not await asyncio.to_thread(is_up, server.http_port):
            assert server.process.returncode is None, server.log.read_text()[-3000:]
            await asyncio.sleep(0.2)
        over_http = await asyncio.to_thread(http, server.http_port, QUESTION)
        over_nnrp = await asyncio.to_thread(nnrp, server.nnrp_port, QUESTION)
        assert over_nnrp["type"] == "response.completed"
        theirs, ours = over_http["choices"][0], over_nnrp["body"]["choices"][0]
        assert ours["message"]["content"] == theirs["message"]["content"]
        assert ours["finish_reason"] == theirs["finish_reason"]
        assert over_nnrp["body"]["usage"]["completion_tokens"] == over_http["usage"]["completion_tokens"]

        children = descendants(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(server.process.wait(), 60)
        assert not server.ready_file.exists(), "the door was closed with the server"
        await until(lambda: all_gone(children), timeout_s=30)
