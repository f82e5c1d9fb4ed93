# SPDX-License-Identifier: MIT
"""The UDP sockets of a QUIC endpoint: datagrams to their connections, new connections, and who must prove itself.

A datagram costs its sender nothing and may carry anybody's address. So while many handshakes are under way, a new peer
must first send back a token that only its true address receives (RFC 9000, section 8.1.2).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from aioquic._buffer import Buffer
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import (
    QuicHeader,
    QuicPacketType,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_header,
)
from aioquic.quic.retry import QuicRetryTokenHandler

from nnrp_wire.acceptor import Acceptor
from nnrp_wire.endpoints import QuicEndpoint
from nnrp_wire.limits import WireLimits
from nnrp_wire.quic import PeerAddress, QuicTransport

_DATAGRAMS_PER_TURN = 64
_MAX_DATAGRAM_BYTES = 65_536
_RECEIVE_BUFFER_BYTES = 2 * 1024 * 1024  # what the kernel keeps while the loop is busy; it may give less
_CONNECTION_ID_BYTES = 8
_HANDSHAKES_WITHOUT_RETRY = 32


@dataclass(slots=True)
class _Place:
    """Where a connection's datagrams come from, and under which ids."""

    socket: socket.socket
    connection_ids: set[bytes] = field(default_factory=set)


class QuicAcceptor(Acceptor):
    """Of UDP sockets: keeps the connections on them. `new_protocol` makes the shell of a new one.

    `has_room`: whether one more connection may live; without room a newcomer hears nothing.
    """

    def __init__(
        self,
        endpoint: QuicEndpoint,
        limits: WireLimits,
        opened: Callable[[], None],
        new_protocol: Callable[[], asyncio.Protocol],
        has_room: Callable[[], bool],
    ) -> None:
        super().__init__(endpoint, limits, opened)
        self._identity = endpoint.identity
        self._new_protocol = new_protocol
        self._has_room = has_room
        self._is_stopped = False
        self._peers: dict[bytes, QuicTransport] = {}  # by each of their connection ids
        self._places: dict[QuicTransport, _Place] = {}
        self._retry = QuicRetryTokenHandler()
        self._versions = QuicConfiguration(is_client=False).supported_versions

    def stop(self) -> None:
        self._is_stopped = True

    # quic.Router

    def send(self, peer: QuicTransport, data: bytes, address: PeerAddress) -> None:
        place = self._places.get(peer)
        if place is not None:
            _send(place.socket, data, address)

    def issued(self, peer: QuicTransport, connection_id: bytes) -> None:
        self._peers[connection_id] = peer
        self._places[peer].connection_ids.add(connection_id)

    def retired(self, peer: QuicTransport, connection_id: bytes) -> None:
        self._peers.pop(connection_id, None)
        self._places[peer].connection_ids.discard(connection_id)

    def terminated(self, peer: QuicTransport) -> None:
        place = self._places.pop(peer, None)
        for connection_id in place.connection_ids if place else ():
            self._peers.pop(connection_id, None)

    # Datagrams

    def _start_reading(self) -> None:
        assert self._binding is not None
        for sock in self._binding.sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        super()._start_reading()

    def _readable(self, sock: socket.socket) -> None:
        for _ in range(_DATAGRAMS_PER_TURN):
            try:
                data, address = sock.recvfrom(_MAX_DATAGRAM_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # an ICMP message about something sent before
                continue
            except OSError as error:
                self._died_of(str(error.strerror or error))
                return
            self._datagram(data, address, sock)

    def _datagram(self, data: bytes, address: PeerAddress, sock: socket.socket) -> None:
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=_CONNECTION_ID_BYTES)
        except ValueError:
            return
        if header.packet_type is QuicPacketType.VERSION_NEGOTIATION:
            return  # only clients get these; to answer one with another would never end
        if header.version is not None and header.version not in self._versions:
            if len(data) >= SMALLEST_MAX_DATAGRAM_SIZE:
                _send(sock, self._versions_for(header), address)
            return
        peer = self._peers.get(header.destination_cid)
        if peer is None:
            is_first = header.packet_type is QuicPacketType.INITIAL and len(data) >= SMALLEST_MAX_DATAGRAM_SIZE
            peer = self._newcomer(header, address, sock) if is_first else None
        if peer is not None:
            self._places[peer].socket = sock
            peer.datagram_received(data, address)

    def _newcomer(self, header: QuicHeader, address: PeerAddress, sock: socket.socket) -> QuicTransport | None:
        """A new connection, unless the peer must show first that the address is its own."""
        if self._is_stopped or not self._has_room():
            return None
        original, retried = header.destination_cid, None
        if header.token:
            try:
                original = self._retry.validate_token(
                    address=address,
                    destination_cid=header.destination_cid,
                    token=header.token,
                    now=self._loop.time(),
                )
                retried = header.destination_cid
            except ValueError:
                return None
        elif self._handshakes() >= _HANDSHAKES_WITHOUT_RETRY:
            _send(sock, self._retry_for(header, address), address)
            return None
        quic = QuicConnection(
            configuration=self._configuration(),
            original_destination_connection_id=original,
            retry_source_connection_id=retried,
        )
        protocol = self._new_protocol()
        peer = QuicTransport(quic, self, protocol, address, self._limits.quic_keep_alive_s)
        self._places[peer] = _Place(sock)
        for connection_id in (header.destination_cid, quic.host_cid):
            self.issued(peer, connection_id)
        protocol.connection_made(peer)
        return peer

    def _handshakes(self) -> int:
        return sum(not peer.is_shaken for peer in self._places)

    def _configuration(self) -> QuicConfiguration:
        chain, key = self._identity()
        return QuicConfiguration(
            is_client=False,
            idle_timeout=self._limits.quic_idle_s,
            connection_id_length=_CONNECTION_ID_BYTES,
            certificate=chain[0],
            certificate_chain=chain[1:],
            private_key=key,
        )

    def _versions_for(self, header: QuicHeader) -> bytes:
        return encode_quic_version_negotiation(
            source_cid=header.destination_cid,
            destination_cid=header.source_cid,
            supported_versions=self._versions,
        )

    def _retry_for(self, header: QuicHeader, address: PeerAddress) -> bytes:
        source_cid = os.urandom(_CONNECTION_ID_BYTES)
        token = self._retry.create_token(
            address=address,
            original_destination_connection_id=header.destination_cid,
            retry_source_connection_id=source_cid,
            now=self._loop.time(),
        )
        assert header.version is not None, "an INITIAL packet has one"
        return encode_quic_retry(
            version=header.version,
            source_cid=source_cid,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=token,
        )


def _send(sock: socket.socket, data: bytes, address: PeerAddress) -> None:
    with suppress(OSError):  # as if it was lost on the way, which QUIC expects
        sock.sendto(data, address)
