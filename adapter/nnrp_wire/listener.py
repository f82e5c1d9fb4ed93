# SPDX-License-Identifier: MIT
"""The listener: accepts connections, bounds their number, drains and closes them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from nnrp_wire.carrier import EndReason, Handler
from nnrp_wire.handles import Pulse
from nnrp_wire.limits import WireLimits
from nnrp_wire.shell import ConnectionShell


class NnrpListener:
    """All connections of one handler, on any number of servers.

    Made by open_listener(). `async with` closes it. For another stream transport make the server with
    `lambda: listener.new_connection("unix")` as its protocol factory and hand it to add_server().
    """

    def __init__(self, handler: Handler, limits: WireLimits) -> None:
        self.limits = limits
        self._handler = handler
        self._servers: list[asyncio.Server] = []
        self._addresses: list[tuple[str, int]] = []
        self._connections: set[ConnectionShell] = set()
        self._changed = Pulse()
        self._is_draining = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Bound (host, port) of every internet socket, the real port where 0 was asked for; also after the end."""
        return tuple(self._addresses)

    @property
    def port(self) -> int:
        return self.addresses[0][1]

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def operations_in_flight(self) -> int:
        return sum(shell.connection.operations_in_flight for shell in self._connections)

    def add_server(self, server: asyncio.Server) -> None:
        self._servers.append(server)
        names = [sock.getsockname() for sock in server.sockets]
        self._addresses += [(name[0], name[1]) for name in names if isinstance(name, tuple)]

    def new_connection(self, transport_name: str) -> ConnectionShell:
        return ConnectionShell(self, self._handler, self.limits, transport_name)

    async def drain(self, grace_s: float) -> None:
        """Stop accepting, let operations finish for `grace_s`, end the rest with SHUTDOWN, close every connection.

        New sessions and submits are refused meanwhile. Returns when all connections are gone.
        """
        self._is_draining = True
        for server in self._servers:
            server.close()
        for shell in self._connections:
            shell.begin_drain()
        if not await self._wait(self._is_quiet, grace_s):
            for shell in tuple(self._connections):
                shell.end_operations(EndReason.SHUTDOWN)
            await self._wait(self._is_quiet, self.limits.close_grace_s)
        for shell in tuple(self._connections):
            shell.close()
        if not await self._wait(self._is_empty, self.limits.close_grace_s):
            for shell in tuple(self._connections):  # peers that do not take the last bytes
                shell.abort()
            await self._wait(self._is_empty, self.limits.close_grace_s)
        for server in self._servers:
            await server.wait_closed()

    async def close(self) -> None:
        """drain() without a grace time."""
        await self.drain(0)

    # What its connections tell it

    def admit(self, shell: ConnectionShell) -> bool:
        if self._is_draining or len(self._connections) >= self.limits.max_connections:
            return False
        self._connections.add(shell)
        return True

    def changed(self) -> None:
        self._changed.fire()

    def gone(self, shell: ConnectionShell) -> None:
        self._connections.discard(shell)
        self._changed.fire()

    def _is_quiet(self) -> bool:
        return all(shell.connection.is_idle for shell in self._connections)

    def _is_empty(self) -> bool:
        return not self._connections

    async def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self._changed.wait()
        except TimeoutError:
            return condition()
        return True


async def open_listener(
    handler: Handler, host: str = "127.0.0.1", port: int = 0, *, limits: WireLimits | None = None
) -> NnrpListener:
    """Listen on tcp. Port 0 takes a free one, see NnrpListener.addresses. Raises OSError.

    Running out of descriptors is no end: the event loop reports it to its exception handler and accepts again.
    """
    listener = NnrpListener(handler, limits or WireLimits())
    server = await asyncio.get_running_loop().create_server(
        lambda: listener.new_connection("tcp"), host, port, backlog=listener.limits.backlog
    )
    listener.add_server(server)
    return listener
