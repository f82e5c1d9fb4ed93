# SPDX-License-Identifier: MIT
"""What a server under test does when its client steers it. vLLM is imported already when these are made."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

from nnrp_openai.encoding import encode_event
from vllm_engine import EngineSpec
from vllm_nnrp.bench.control import Command


def scripted_commands(client: Any) -> Mapping[str, Command]:
    """Of any server on a PacedClient."""
    from vllm_engine.oracle.paced import Pace

    async def word() -> str:
        return str(client.token_text)

    async def pace(interval_s: float, spread: bool = False) -> None:
        client.pace = Pace(interval_s, spread)

    async def forget() -> None:
        client.forget()

    async def take() -> dict[str, Any]:
        return {"emitted": client.emitted, "aborted": client.aborted, "after_abort": client.after_abort}

    async def all_aborted(count: int) -> None:
        await client.all_aborted(count)

    return {"word": word, "pace": pace, "forget": forget, "take": take, "all_aborted": all_aborted}


def engine_commands(engine: Any, spec: EngineSpec) -> Mapping[str, Command]:
    """Costs inside the process of our doors, on the same client."""
    from vllm_engine.oracle.costs import Costs
    from vllm_engine.oracle.direct import Direct
    from vllm_engine.oracle.serving import Oracle

    costs = Costs(engine.llm, engine, Oracle(engine.llm, spec), encode_event)
    direct = Direct(engine)
    return {
        **scripted_commands(engine.llm),
        "parsing": costs.parsing,
        "request": costs.request,
        "length": costs.length,
        "direct": direct.run,
    }


async def real_commands(engine: Any, spec: EngineSpec, keep: list[object]) -> Mapping[str, Command]:
    """Of a process with a real engine: vLLM's HTTP app is opened beside our doors, on the same AsyncLLM."""
    from vllm_engine.oracle.direct import Aborts, Direct
    from vllm_engine.oracle.http import HOST, server_beside

    server = await server_beside(engine.llm, spec)
    sock = socket.socket()
    sock.bind((HOST, 0))
    sock.listen()
    keep.append(asyncio.create_task(server.serve(sockets=[sock])))
    direct, aborts = Direct(engine), Aborts(engine.llm)

    async def http() -> str:
        host, port = sock.getsockname()
        return f"{host}:{port}"

    async def forget() -> None:
        aborts.times = []

    async def take() -> list[float]:
        return aborts.times

    return {"http": http, "direct": direct.run, "forget": forget, "take": take}
