# SPDX-License-Identifier: MIT
"""The listener: all connections of one handler, on any number of endpoints; bounded, drained, closed."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from nnrp_wire.acceptor import Acceptor, StreamAcceptor
from nnrp_wire.carrier import EndReason, Handler
from nnrp_wire.counts import FrameCounts
from nnrp_wire.endpoints import Endpoint, NetworkEndpoint, QuicEndpoint, StreamEndpoint
from nnrp_wire.handles import Flusher, Pulse
from nnrp_wire.layers import Layers
from nnrp_wire.limits import WireLimits
from nnrp_wire.shell import ConnectionShell

logger = logging.getLogger(__name__)


class NnrpListener:
    """Accepts on every endpoint given to listen() or keep_trying(). `async with` closes it.

    `opened` is called with no argument whenever an endpoint opens, again after it died too. `frames` counts what comes.
    """

    def __init__(
        self,
        handler: Handler,
        limits: WireLimits,
        opened: Callable[[], None] = lambda: None,
        frames: FrameCounts | None = None,
    ) -> None:
        self.limits = limits
        self.frames = frames or FrameCounts()
        self.flusher = Flusher()
        self._handler = handler
        self._opened = opened
        self._acceptors: list[Acceptor] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._connections: set[ConnectionShell] = set()
        self._changed = Pulse()
        self._is_draining = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    # Endpoints

    async def listen(self, endpoint: Endpoint) -> None:
        """Open it now and keep it open. Raises OSError if it cannot be opened now."""
        acceptor = self._add(endpoint)
        try:
            await acceptor.open()
        except BaseException:
            self._acceptors.remove(acceptor)
            raise

    def keep_trying(self, endpoint: Endpoint) -> None:
        """Open it as soon as that can be done, and keep it open."""
        self._add(endpoint).keep_trying()

    def _add(self, endpoint: Endpoint) -> Acceptor:
        acceptor: Acceptor
        if isinstance(endpoint, QuicEndpoint):
            from nnrp_wire.quic_acceptor import QuicAcceptor  # its packages take their time to import

            def new_protocol() -> ConnectionShell:
                return self.new_connection(endpoint.transport)

            acceptor = QuicAcceptor(endpoint, self.limits, self._opened, new_protocol, self._has_room)
        else:
            acceptor = StreamAcceptor(endpoint, self.limits, self._opened, self._adopt)
        self._acceptors.append(acceptor)
        return acceptor

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Those that are open, with their real ports."""
        return tuple(acceptor.endpoint for acceptor in self._acceptors if acceptor.is_open)

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Bound (host, port) of every open internet socket, the real port where 0 was asked for."""
        return tuple(address for acceptor in self._acceptors for address in acceptor.addresses)

    @property
    def port(self) -> int:
        return self.addresses[0][1]

    # Connections

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def operations_in_flight(self) -> int:
        return sum(shell.connection.operations_in_flight for shell in self._connections)

    def new_connection(self, transport_name: str, layers: Layers | None = None) -> ConnectionShell:
        return ConnectionShell(self, self._handler, self.limits, transport_name, layers)

    def _adopt(self, sock: socket.socket, endpoint: StreamEndpoint) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(sock, endpoint))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, sock: socket.socket, endpoint: StreamEndpoint) -> None:
        with suppress(OSError):  # the peer has gone already
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self.new_connection(endpoint.transport, endpoint.layers(self.limits)), sock
            )
            return
        sock.close()

    # The end

    async def drain(self, grace_s: float) -> None:
        """Stop accepting, let operations finish for `grace_s`, end the rest with SHUTDOWN, close every connection.

        New sessions and submits are refused meanwhile. Returns when all connections are gone.
        """
        self._is_draining = True
        for shell in self._connections:
            shell.begin_drain()
        for acceptor in self._acceptors:
            acceptor.stop()
        if self._connecting:
            await asyncio.wait(tuple(self._connecting))
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
        for acceptor in self._acceptors:
            await acceptor.close()

    async def close(self) -> None:
        """drain() without a grace time."""
        await self.drain(0)

    # What its connections tell it

    def admit(self, shell: ConnectionShell) -> bool:
        if not self._has_room():
            return False
        self._connections.add(shell)
        return True

    def _has_room(self) -> bool:
        return not self._is_draining and len(self._connections) < self.limits.max_connections

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
    """A listener on one plain tcp endpoint; port 0 takes a free one, see NnrpListener.port. Raises OSError."""
    listener = NnrpListener(handler, limits or WireLimits())
    await listener.listen(NetworkEndpoint(host, port))
    return listener
