# SPDX-License-Identifier: MIT
"""The NNRP door: our carrier's listener with the profile's handler on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chatserving import EngineHost, RequestRunner
from nnrp_openai import ChatAdapter, ProfileHandler, ProfileLimits
from nnrp_wire import NnrpListener, open_listener
from vllm_nnrp.addresses import Address


@dataclass(frozen=True, slots=True)
class NnrpDoor:
    """A listener and the address it really has. Whoever opened it closes it."""

    address: Address
    handler: ProfileHandler
    listener: NnrpListener

    async def close(self, grace_s: float) -> None:
        """Accept nothing more, let operations end for `grace_s`, abort the rest, close every connection."""
        self.handler.begin_drain()
        await self.listener.drain(grace_s)
        await self.handler.close()


async def open_nnrp(
    address: Address, host: EngineHost, runner: RequestRunner, *, token: str | None, max_operations: int
) -> NnrpDoor:
    """Listen on `address`. Raises OSError, also when another process has the port."""
    handler = ProfileHandler(
        ChatAdapter(host, runner), limits=ProfileLimits(max_operations=max_operations), token=token
    )
    listener = await open_listener(handler, address.host, address.port)
    return NnrpDoor(replace(address, port=listener.port), handler, listener)
