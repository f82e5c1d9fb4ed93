# SPDX-License-Identifier: MIT
"""A handler over ScriptedEngine, for tests at the carrier seam and over sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from chatdelta import EngineInfo
from chatdelta.testing import SCRIPTED_INFO, Script, ScriptedEngine, Step
from chatserving import EngineHost, RequestRunner
from nnrp_openai import ChatAdapter, ProfileHandler
from tests.support.records import Records


@dataclass
class Served:
    engine: ScriptedEngine
    host: EngineHost
    handler: ProfileHandler
    records: Records


@asynccontextmanager
async def serving(
    script: Script | Iterable[Step], *, info: EngineInfo = SCRIPTED_INFO, **options: Any
) -> AsyncIterator[Served]:
    """A loaded host and a handler on it; `options` are the handler's. On exit no task may be left."""
    engine = ScriptedEngine(script, info=info)
    host = EngineHost(drain_s=1.0)
    records = Records()

    async def opened() -> ScriptedEngine:
        return engine

    await host.load("key", opened)
    handler = ProfileHandler(ChatAdapter(host, RequestRunner(host, [records])), **options)
    try:
        yield Served(engine, host, handler, records)
    finally:
        await handler.close()
        assert handler.in_flight == 0
        await host.close()
    assert engine.running == set()
