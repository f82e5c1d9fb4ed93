# SPDX-License-Identifier: MIT
"""The transports under test: where each listens, and how its peers come in."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.x509 import Certificate

from nnrp_wire import NetworkEndpoint, NnrpListener, QuicEndpoint, UnixEndpoint, WireLimits
from nnrp_wire.endpoints import Endpoint
from tests.nnrp_wire.scripted_handler import ScriptedHandler
from tests.support import certificates
from tests.support.raw_peer import QuicPeer, RawPeer, WebSocketPeer
from tests.support.sdk_client import SdkClient

NO_HOLD = WireLimits(trace_hold_s=0)


@dataclass(frozen=True)
class Carrier:
    """One transport, by the name that sessions have for it."""

    name: str

    @property
    def is_encrypted(self) -> bool:
        return self.name in ("tls", "wss", "quic")

    @property
    def is_quic(self) -> bool:
        return self.name == "quic"

    @property
    def is_websocket(self) -> bool:
        return self.name in ("ws", "wss")

    def endpoint(self, folder: str) -> Endpoint:
        """In `folder` if it needs a file."""
        if self.name == "unix":
            return UnixEndpoint(f"{folder}/nnrp.sock")
        if self.is_quic:
            return QuicEndpoint("127.0.0.1", 0, server_identity)
        return NetworkEndpoint("127.0.0.1", 0, self.is_websocket, server_context if self.is_encrypted else None)

    async def peer(self, listener: NnrpListener) -> RawPeer:
        """A raw peer, behind the transport's own handshakes."""
        (endpoint,) = listener.endpoints
        return await self.peer_at(endpoint)

    async def peer_at(self, endpoint: Endpoint, tls: ssl.SSLContext | None = None) -> RawPeer:
        if isinstance(endpoint, UnixEndpoint):
            return await RawPeer.unix(endpoint.path)
        if self.is_quic:
            return await QuicPeer.quic(endpoint.port, certificates.authority().pem)
        if self.is_encrypted:
            tls = tls or client_context()
        if self.is_websocket:
            return await WebSocketPeer.websocket(endpoint.port, tls)
        return await RawPeer.tcp(endpoint.port, tls)

    async def stream(self, listener: NnrpListener) -> RawPeer:
        """A raw peer on the bare socket of a stream transport."""
        (endpoint,) = listener.endpoints
        if isinstance(endpoint, UnixEndpoint):
            return await RawPeer.unix(endpoint.path)
        return await RawPeer.tcp(endpoint.port)

    def sdk_client(self, listener: NnrpListener) -> SdkClient:
        """Blocks."""
        return SdkClient.connect_url(self.url(listener), certificates.authority().der if self.is_encrypted else None)

    def url(self, listener: NnrpListener) -> str:
        (endpoint,) = listener.endpoints
        if isinstance(endpoint, UnixEndpoint):
            return f"unix://{endpoint.path}"
        scheme = {"tcp": "nnrp", "tls": "nnrps"}.get(self.name, self.name)
        return f"{scheme}://127.0.0.1:{endpoint.port}"


TCP, TLS, UNIX, WS, WSS = STREAMS = tuple(Carrier(name) for name in ("tcp", "tls", "unix", "ws", "wss"))
QUIC = Carrier("quic")
CARRIERS = (*STREAMS, QUIC)


@dataclass(frozen=True)
class Place:
    """A listener on one carrier, with its handler."""

    carrier: Carrier
    listener: NnrpListener
    handler: ScriptedHandler

    async def peer(self) -> RawPeer:
        return await self.carrier.peer(self.listener)

    async def opened(self, *frames: bytes) -> RawPeer:
        """A raw peer with session 1 open, and `frames` sent."""
        return await (await self.peer()).opened(*frames)


@asynccontextmanager
async def listening(carrier: Carrier = TCP, limits: WireLimits = NO_HOLD) -> AsyncIterator[Place]:
    handler = ScriptedHandler()
    with TemporaryDirectory(prefix="nnrp-") as folder:
        async with NnrpListener(handler, limits) as listener:
            await listener.listen(carrier.endpoint(folder))
            yield Place(carrier, listener, handler)
        await handler.finished()


@cache
def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as folder:
        context.load_cert_chain(*certificates.server().save(Path(folder), "server", certificates.intermediate()))
    return context


def server_identity() -> tuple[list[Certificate], EllipticCurvePrivateKey]:
    own = certificates.server()
    return [own.certificate, certificates.intermediate().certificate], own.key


@cache
def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificates.authority().pem.decode())
