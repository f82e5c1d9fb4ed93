# SPDX-License-Identifier: MIT
"""The load of tests/soak on the real engine: conversations arrive whole, and early ends reach the scheduler."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

import pytest

from chatserving import RequestRunner
from nnrp_openai import ChatAdapter, ProfileHandler
from nnrp_wire import NnrpListener, WireLimits
from tests.conftest import Figure
from tests.nnrp_wire.carriers import TCP, UNIX, WS
from tests.real_engine.backend import MODEL, RealBackend
from tests.soak.connections import Target
from tests.soak.length import SEED, load_seconds
from tests.soak.load import Load
from tests.soak.questions import Question
from tests.support.waiting import until
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS

pytestmark = pytest.mark.asyncio(loop_scope="session")
WIDTH, DEPTH = 5, 3
PATIENCE_S = 300.0  # the longest answer has 400 tokens, and the machine may have other things to do
QUESTIONS = [
    Question(
        conversation.name,
        conversation.request_body(MODEL),
        conversation.content,
        conversation.streamed_reasoning,
        tuple((name, json.dumps(arguments)) for name, arguments in conversation.tool_calls),
    )
    for conversation in CONVERSATIONS
]


@asynccontextmanager
async def door(backend: RealBackend) -> AsyncIterator[list[Target]]:
    """A door of its own on the session's engine, on several transports."""
    handler = ProfileHandler(ChatAdapter(backend.host, RequestRunner(backend.host)))
    with TemporaryDirectory(prefix="nnrp-") as folder:
        async with NnrpListener(handler, WireLimits()) as listener:
            carriers = {carrier.name: carrier for carrier in (TCP, WS, UNIX)}
            for carrier in carriers.values():
                await listener.listen(carrier.endpoint(folder))
            yield [Target(carriers[endpoint.transport], endpoint) for endpoint in listener.endpoints]
            await until(lambda: handler.in_flight == 0 and listener.connection_count == 0)
        await handler.close()


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
async def test_nothing_is_lost_doubled_or_misordered(backend: RealBackend, figure: Figure, is_soak: bool) -> None:
    seconds = load_seconds(is_soak=is_soak)
    backend.counts.peak = 0

    def ask(chance: random.Random) -> Question:
        return chance.choice(QUESTIONS)

    async with door(backend) as targets:
        load = Load(targets, ask, SEED, WIDTH, DEPTH, PATIENCE_S)
        await load.run(seconds)
        await backend.counts.idle()
        await until(lambda: backend.host.in_flight == 0)

    figure(f"real engine, {seconds:.0f} s, seed {SEED}: idle in the end; at most {backend.counts.peak} ran at once")
    for line in load.totals.lines(seconds):
        figure(f"real engine: {line}")
    assert load.totals.outcomes["completed"] > load.totals.operations / 2
