# SPDX-License-Identifier: MIT
"""Where to listen and how peers wrap their bytes there, as values; and binding them.

A TLS endpoint has a function that gives the context, so that a renewed certificate is used from the next connection on.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nnrp_wire.layers import Layer, Layers
from nnrp_wire.limits import WireLimits
from nnrp_wire.tls import TlsLayer
from nnrp_wire.unix_socket import UnixSocket, bind_unix
from nnrp_wire.websocket import WebSocketLayer

_FREE_PORT_TRIES = 8
# An address that this machine does not have; no failure as long as another one of the same name works.
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class NetworkEndpoint:
    """A host (name or address; a name may mean several addresses) and a port, 0 for a free one."""

    host: str
    port: int
    websocket: bool = False
    tls: Callable[[], ssl.SSLContext] | None = None

    @property
    def transport(self) -> str:
        if self.websocket:
            return "ws" if self.tls is None else "wss"
        return "tcp" if self.tls is None else "tls"

    def layers(self, limits: WireLimits) -> Layers:
        """Of a new connection."""
        layers: list[Layer] = []
        if self.tls is not None:
            layers.append(TlsLayer(self.tls()))
        if self.websocket:
            layers.append(WebSocketLayer(limits.max_packet_bytes))
        return Layers(*layers)

    async def bind(self, backlog: int) -> NetworkBinding:
        """Raises OSError."""
        return NetworkBinding(self, await _bind_host(self.host, self.port, socket.SOCK_STREAM, backlog))


@dataclass(frozen=True, slots=True)
class UnixEndpoint:
    """A socket file. Only its owner may connect; with `group` its members too."""

    path: str
    group: str | None = None

    transport = "unix"

    def layers(self, _limits: WireLimits) -> Layers:
        return Layers()

    async def bind(self, backlog: int) -> UnixBinding:
        """Raises OSError, also when something is at `path` that must not be replaced."""
        return UnixBinding(self, await bind_unix(self.path, self.group, backlog))


@dataclass(frozen=True, slots=True)
class QuicEndpoint:
    """A host and a port of UDP. `identity` gives the certificate chain, the server's first, and its key.

    Both are objects of the `cryptography` package; as with TLS, what it gives counts from the next connection on.
    """

    host: str
    port: int
    identity: Callable[[], tuple[list[Any], Any]]

    transport = "quic"

    async def bind(self, _backlog: int) -> NetworkBinding:
        """Raises OSError."""
        return NetworkBinding(self, await _bind_host(self.host, self.port, socket.SOCK_DGRAM, 0))


class NetworkBinding:
    """Bound, and listening where that means something. `endpoint` has the real port."""

    def __init__(self, endpoint: NetworkEndpoint | QuicEndpoint, sockets: list[socket.socket]) -> None:
        self.sockets = sockets
        self.addresses: list[tuple[str, int]] = [sock.getsockname()[:2] for sock in sockets]
        self.endpoint = replace(endpoint, port=self.addresses[0][1])

    def is_intact(self) -> bool:
        return True

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


class UnixBinding:
    """Bound and listening on a socket file."""

    def __init__(self, endpoint: UnixEndpoint, file: UnixSocket) -> None:
        self.endpoint = endpoint
        self.sockets = [file.socket]
        self.addresses: list[tuple[str, int]] = []
        self._file = file

    def is_intact(self) -> bool:
        """Whether peers still find it: somebody may have removed the file."""
        return self._file.is_in_place()

    def close(self) -> None:
        self._file.close()


StreamEndpoint = NetworkEndpoint | UnixEndpoint
Endpoint = StreamEndpoint | QuicEndpoint
Binding = NetworkBinding | UnixBinding


def describe(endpoint: Endpoint) -> str:
    """For logs."""
    where = endpoint.path if isinstance(endpoint, UnixEndpoint) else f"{endpoint.host}:{endpoint.port}"
    return f"{endpoint.transport} {where}"


async def _bind_host(host: str, port: int, kind: socket.SocketKind, backlog: int) -> list[socket.socket]:
    """One socket for each address of the host, all with one port. Raises OSError."""
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
    except UnicodeError:
        raise OSError(errno.EINVAL, "this can be no host name") from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in infos))
    tries = _FREE_PORT_TRIES if port == 0 and len(addresses) > 1 else 1
    for last in (False,) * (tries - 1) + (True,):
        try:
            return _bind_all(addresses, kind, backlog)
        except OSError as error:
            if last or error.errno != errno.EADDRINUSE:  # the free port of one address may be taken at another
                raise
    raise AssertionError("the last try returns or raises")


def _bind_all(
    addresses: Sequence[tuple[int, tuple[object, ...]]], kind: socket.SocketKind, backlog: int
) -> list[socket.socket]:
    """A socket for each address of this machine, all on one port. Raises OSError."""
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in addresses:
            if sockets:
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            try:
                sockets.append(_bind(family, address, kind, backlog))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    if not sockets:
        raise missing or OSError(errno.EADDRNOTAVAIL, "the host has no address")
    return sockets


def _bind(family: int, address: tuple[object, ...], kind: socket.SocketKind, backlog: int) -> socket.socket:
    sock = socket.socket(family, kind)
    try:
        sock.setblocking(False)
        if kind is socket.SOCK_STREAM:  # on UDP it would let another process take the port as well
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
        sock.bind(address)
        if kind is socket.SOCK_STREAM:
            sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    return sock
