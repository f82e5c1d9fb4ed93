# SPDX-License-Identifier: MIT
"""Chats that are not among the memorised ones, over either door: their events, answers and refusals."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from localai_proto import backend_pb2 as pb
from tests.real_engine.backend import MODEL, RealBackend
from tests.support.sdk_client import SdkClient
from tests.vllm_nnrp.doors import status_of

Event = dict[str, Any]


async def events_over_nnrp(backend: RealBackend, **body: Any) -> list[Event]:
    """Every event of one streamed chat completion, the terminal last."""
    envelope = {
        "schema_version": "openai-compatible/1",
        "operation": "chat.completions.create",
        "body": {"model": MODEL, "stream": True, **body},
    }

    def scenario() -> list[Event]:
        with SdkClient.connect(backend.nnrp.port) as client:
            session = client.open_session()
            operation = session.submit(json.dumps(envelope).encode())
            return [json.loads(event.payload) for event in session.collect(operation, timeout_s=60)]

    return await asyncio.to_thread(scenario)


async def completed_over_nnrp(backend: RealBackend, **body: Any) -> Event:
    """The one choice of a completed answer."""
    *_, terminal = await events_over_nnrp(backend, **body)
    assert terminal["type"] == "response.completed", terminal
    (choice,) = terminal["body"]["choices"]
    return dict(choice)


async def refused_over_nnrp(backend: RealBackend, **body: Any) -> Event:
    """The error of a request that must be refused before anything is generated."""
    (terminal,) = await events_over_nnrp(backend, **body)
    assert terminal["type"] == "response.error", terminal
    return dict(terminal["error"])


async def refused_over_grpc(backend: RealBackend, options: pb.PredictOptions) -> tuple[str, str]:
    """(status name, details) of a request that must be refused, streamed or not."""
    streamed = await status_of(backend.stub.PredictStream(options))
    assert await status_of(backend.stub.Predict(options)) == streamed
    return streamed[0].name, streamed[1]
