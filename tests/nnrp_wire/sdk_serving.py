# SPDX-License-Identifier: MIT
"""A listener on one transport with one client of the SDK connected: what the `serving` fixture gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from nnrp_wire import NnrpListener, WireLimits
from tests.nnrp_wire.carriers import Carrier, listening
from tests.nnrp_wire.scripted_handler import ScriptedHandler
from tests.support.sdk_client import SdkClient, SdkOperation, SdkSession


@dataclass
class Served:
    """All calls of the client block and therefore run in threads."""

    transport: str
    handler: ScriptedHandler
    listener: NnrpListener
    client: SdkClient

    async def open(self, **options: int) -> SdkSession:
        return await asyncio.to_thread(lambda: self.client.open_session(**options))

    async def held(self, session: SdkSession) -> SdkOperation:
        """An operation whose first event the client has seen and which then waits for its end."""
        operation = await asyncio.to_thread(session.submit, b"hold")
        await asyncio.to_thread(lambda: next(session.events(operation)))
        return operation


Serving = Callable[..., AbstractAsyncContextManager[Served]]


def serving_on(carrier: Carrier) -> Serving:
    """serving(limits) for one carrier."""

    @asynccontextmanager
    async def serving(limits: WireLimits | None = None) -> AsyncIterator[Served]:
        async with listening(carrier, limits or WireLimits()) as place:
            client = await asyncio.to_thread(carrier.sdk_client, place.listener)
            try:
                yield Served(carrier.name, place.handler, place.listener, client)
            finally:
                await asyncio.to_thread(client.close)

    return serving
