# SPDX-License-Identifier: MIT
"""One QUIC connection as a stream transport: its one bidirectional stream, on aioquic's sans-IO QuicConnection.

NNRP over QUIC is one stream that the client opens, with packets back to back on it as on tcp; no ALPN. So a connection
has the same shell as every other one, and this is its asyncio.Transport. All names of aioquic that are not documented
are in this module: what of the stream is not yet acknowledged, and what waits for a gap to be filled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import (
    ConnectionIdIssued,
    ConnectionIdRetired,
    ConnectionTerminated,
    HandshakeCompleted,
    QuicEvent,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)
from aioquic.quic.packet import QuicErrorCode

logger = logging.getLogger(__name__)

PeerAddress = tuple[Any, ...]  # of the socket's family

_STREAM_ID = 0  # the first one that a client opens for both directions
_MAX_REASSEMBLY_BYTES = 4 * 1024 * 1024  # held for a gap: aioquic's window grows without end


class Router(Protocol):
    """Who has the sockets."""

    def send(self, peer: QuicTransport, data: bytes, address: PeerAddress) -> None:
        """One datagram; it may get lost."""

    def issued(self, peer: QuicTransport, connection_id: bytes) -> None: ...
    def retired(self, peer: QuicTransport, connection_id: bytes) -> None: ...
    def terminated(self, peer: QuicTransport) -> None:
        """Nothing more will come or go."""


class QuicTransport(asyncio.Transport):
    """The transport of one peer, and what keeps its QUIC connection going."""

    def __init__(
        self,
        quic: QuicConnection,
        router: Router,
        protocol: asyncio.Protocol,
        address: PeerAddress,
        keep_alive_s: float,
    ) -> None:
        super().__init__({"peername": address})
        self._quic = quic
        self._router = router
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._transmit_handle: asyncio.Handle | None = None
        self._keep_alive_s = keep_alive_s
        self._keep_alive = self._loop.call_later(keep_alive_s, self._ping)
        self._high_water_bytes = 64 * 1024
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False  # the protocol was told
        self._is_terminated = False  # nothing more comes or goes
        self._was_opened = False  # the peer has opened the stream
        self.is_shaken = False

    # From the router

    def datagram_received(self, data: bytes, address: PeerAddress) -> None:
        with self._faults_contained():
            self._quic.receive_datagram(data, address, now=self._loop.time())
            self._take_events()
            self._transmit_soon()

    # asyncio.Transport

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water_bytes = 64 * 1024 if high is None else high

    def get_write_buffer_size(self) -> int:
        """Written, and not acknowledged by the peer."""
        stream = self._quic._streams.get(_STREAM_ID)
        return 0 if stream is None else len(stream.sender._buffer)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not self._was_opened:
            return
        self._quic.send_stream_data(_STREAM_ID, bytes(data))
        self._transmit_soon()
        if not self._is_paused and self.get_write_buffer_size() > self._high_water_bytes:
            self._is_paused = True
            self._protocol.pause_writing()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Close when all that was written has arrived."""
        if self._is_closing:
            return
        self._is_closing = True
        if self.get_write_buffer_size():
            self._quic.send_stream_data(_STREAM_ID, b"", end_stream=True)
            self._transmit_soon()
        else:
            self._close_now()

    def abort(self) -> None:
        self._is_closing = True
        self._close_now()

    def _close_now(self) -> None:
        self._quic.close(error_code=QuicErrorCode.NO_ERROR)
        self._transmit_soon()
        self._loop.call_soon(self._lose)

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._keep_alive.cancel()
            self._protocol.connection_lost(None)

    # Events

    def _take_events(self) -> None:
        while (event := self._quic.next_event()) is not None:
            self._take(event)
        if self._reassembly_bytes() > _MAX_REASSEMBLY_BYTES:
            logger.info("closing %s: too much behind a gap", self.get_extra_info("peername"))
            self.abort()
        if self._is_lost:
            return
        outstanding = self.get_write_buffer_size()
        if self._is_paused and outstanding <= self._high_water_bytes // 4:
            self._is_paused = False
            self._protocol.resume_writing()
        if self._is_closing and not outstanding:
            self._close_now()

    def _take(self, event: QuicEvent) -> None:
        match event:
            case ConnectionIdIssued(connection_id):
                self._router.issued(self, connection_id)
            case ConnectionIdRetired(connection_id):
                self._router.retired(self, connection_id)
            case HandshakeCompleted():
                self.is_shaken = True
            case ConnectionTerminated():
                self._terminated()
            case StreamDataReceived(data, end_stream, stream_id):
                self._received(data, end_stream, stream_id)
            case StreamReset() | StopSendingReceived():
                self.abort()
            case _:
                pass

    def _received(self, data: bytes, end_stream: bool, stream_id: int) -> None:
        if stream_id != _STREAM_ID:
            logger.info("closing %s: a second stream", self.get_extra_info("peername"))
            self.abort()
            return
        self._was_opened = True
        if data and not self._is_closing:
            self._protocol.data_received(data)
        if end_stream:
            self.close()

    def _terminated(self) -> None:
        self._is_closing = self._is_terminated = True
        for handle in (self._timer, self._transmit_handle):
            if handle is not None:
                handle.cancel()
        self._timer = self._transmit_handle = None
        self._router.terminated(self)
        self._lose()

    def _reassembly_bytes(self) -> int:
        return sum(len(stream.receiver._buffer) for stream in self._quic._streams.values())

    # Out, and time

    def _transmit_soon(self) -> None:
        # Once per turn of the loop: acknowledgements and events share datagrams.
        if self._transmit_handle is None and not self._is_terminated:
            self._transmit_handle = self._loop.call_soon(self._transmit)

    def _transmit(self) -> None:
        self._transmit_handle = None
        with self._faults_contained():
            for data, address in self._quic.datagrams_to_send(now=self._loop.time()):
                self._router.send(self, data, address)
            self._set_timer(self._quic.get_timer())

    def _set_timer(self, due_s: float | None) -> None:
        if self._timer is not None and due_s != self._timer_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and due_s is not None:
            self._timer = self._loop.call_at(due_s, self._time_up)
            self._timer_at = due_s

    def _time_up(self) -> None:
        self._timer = None
        with self._faults_contained():
            self._quic.handle_timer(now=max(self._timer_at, self._loop.time()))
            self._take_events()
            self._transmit_soon()

    @contextmanager
    def _faults_contained(self) -> Iterator[None]:
        """A fault of the QUIC library costs its peer, not the listener. The peer notices by our silence."""
        try:
            yield
        except Exception:
            logger.exception("the QUIC connection of %s failed", self.get_extra_info("peername"))
            self._terminated()

    def _ping(self) -> None:
        self._quic.send_ping(0)
        self._transmit_soon()
        self._keep_alive = self._loop.call_later(self._keep_alive_s, self._ping)
