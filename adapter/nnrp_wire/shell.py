# SPDX-License-Identifier: MIT
"""The asyncio shell of one connection: bytes and time around the layers and the sans-IO core.

A Protocol for any stream transport. It decides nothing about frames; it adds one write per turn of the event loop,
backpressure and timeouts. What the core has to tell goes through dispatch.py to the handler.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from itertools import count
from typing import Any, Protocol, cast

from nnrp_wire.carrier import EndReason, Handler
from nnrp_wire.connection import Connection
from nnrp_wire.counts import FrameCounts
from nnrp_wire.deadlines import Now
from nnrp_wire.dispatch import Dispatcher
from nnrp_wire.handles import Flusher, Pulse
from nnrp_wire.layers import Layers
from nnrp_wire.limits import WireLimits
from nnrp_wire.patience import Patience
from nnrp_wire.state import ConnectionState, Interrupted, Reopened

logger = logging.getLogger(__name__)

_connection_numbers = count(1)  # for ids in logs, unique in the process
_LOGGED_REASON_CHARS = 200  # a layer's reason may quote the peer


class Owner(Protocol):
    """The listener as its connections see it."""

    frames: FrameCounts
    flusher: Flusher

    def admit(self, shell: ConnectionShell) -> bool:
        """Whether this connection may live; counts it if so."""

    def changed(self) -> None:
        """An operation has its terminal."""

    def gone(self, shell: ConnectionShell) -> None: ...


class ConnectionShell(asyncio.Protocol):
    """One peer on a stream transport."""

    def __init__(
        self, owner: Owner, handler: Handler, limits: WireLimits, transport_name: str, layers: Layers | None = None
    ) -> None:
        self.connection_id = f"c{next(_connection_numbers)}"
        self.transport_name = transport_name
        self.peer = ""
        self.connection = Connection(limits, self.connection_id, owner.frames)
        self._owner, self._limits = owner, limits
        self._layers = layers or Layers()
        self._loop = asyncio.get_running_loop()
        self._dispatcher = Dispatcher(handler, self, limits.trace_hold_s)
        self._patience = Patience(self.connection, limits, self._loop.time())
        self._transport: asyncio.Transport | None = None  # None: not admitted, or lost
        self._room = Pulse()
        self._is_paused = False
        self._is_pumping = False
        self._awaits_flush = False
        self._timer: asyncio.Handle | None = None  # uvloop's for what is due now has no when()
        self._timer_due_s = 0.0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        self.peer = _address_text(stream.get_extra_info("peername"))
        if not self._owner.admit(self):
            logger.info("%s: %s turned away, no room", self.connection_id, self.peer)
            stream.abort()
            return
        logger.debug("%s: connected from %s", self.connection_id, self.peer)
        self._transport = stream
        stream.set_write_buffer_limits(high=self._limits.write_high_water_bytes)
        _set_socket_options(stream.get_extra_info("socket"))
        self._arm()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self.connection.feed(self._layers.receive(data))
        self._answer()
        self.pump()
        holds_half = self.connection.holds_half_packet or self._layers.holds_half
        self._patience.received(self._loop.time(), holds_half=holds_half)
        if self._layers.ended is not None:
            self._peer_has_ended(self._layers.ended)
        self._arm()

    def connection_lost(self, _exc: Exception | None) -> None:
        if self._transport is None:
            return
        self.connection.lose(EndReason.DISCONNECTED)
        self.pump()
        self._transport = None
        self._room.fire()
        if self._timer is not None:
            self._timer.cancel()
        self._owner.gone(self)
        logger.debug("%s: connection lost", self.connection_id)

    def pause_writing(self) -> None:
        self._is_paused = True
        self._patience.paused(self._loop.time(), self._buffered_bytes())
        self._arm()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._patience.resumed()
        self.connection.peer_is_reading()
        self._room.fire()

    # Writing; the handles use these

    @property
    def is_full(self) -> bool:
        return self._is_paused or self.connection.output_bytes >= self._limits.write_high_water_bytes

    async def writable(self) -> None:
        """Wait for room; the caller looks again, since others wait too."""
        if not self._is_paused:
            self.flush()
        if self._is_paused:
            await self._room.wait()
        else:
            await asyncio.sleep(0)  # a handler that never waits otherwise must not keep the loop for itself

    @property
    def max_hold_s(self) -> float:
        return self._limits.max_hold_s

    async def reopened(self) -> None:
        """Wait until credit comes or an operation ends; the caller looks again."""
        await self._room.wait()

    def schedule_flush(self) -> None:
        # One write per turn of the loop: what all operations push in this turn leaves in one segment.
        if not self._awaits_flush and self._transport is not None:
            self._awaits_flush = True
            self._owner.flusher.add(self)

    def terminal_sent(self) -> None:
        self._patience.active(self._loop.time())
        self.pump()  # the last terminal may have closed its session
        self._arm()
        self._owner.changed()

    def flush(self) -> None:
        self._awaits_flush = False
        if self._transport is None or not (data := self.connection.take_output()):
            return
        self._write(self._layers.wrap(data))
        if not self._is_paused:
            self.connection.peer_is_reading()

    def _answer(self) -> None:
        """Send what the layers themselves have to say."""
        if answers := self._layers.take_answers():
            if self._is_paused:
                self.connection.count_answer(len(answers))
            self._write(answers)

    def _write(self, data: bytes) -> None:
        if not data or self._transport is None or self._transport.is_closing():
            return
        if self._is_paused:
            self._patience.written_while_paused(len(data))
        self._transport.write(data)

    def _buffered_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # Ends; the listener uses these

    def begin_drain(self) -> None:
        self.connection.begin_drain()

    def end_operations(self, reason: EndReason) -> None:
        self.connection.end_operations(reason)
        self.pump()

    def close(self) -> None:
        """Say the last words, then close once they are written."""
        self.connection.turn_away()
        self.pump()
        self.flush()
        self._write(self._layers.farewell())
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _peer_has_ended(self, reason: str) -> None:
        """A layer lets nothing more through; what it said last still goes out."""
        logger.info("%s: closing %s: %s", self.connection_id, self.peer, reason[:_LOGGED_REASON_CHARS])
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(self._limits.close_grace_s, self.abort)  # if it does not take even that
        self.connection.lose(EndReason.DISCONNECTED)
        self.pump()

    # Events

    def pump(self) -> None:
        """Hand the core's events to the handler until there are none."""
        if self._is_pumping:  # a handler call ended an operation: the outer loop goes on
            return
        self._is_pumping = True
        try:
            while (event := self.connection.next_event(self._now())) is not None:
                if isinstance(event, Interrupted | Reopened):
                    self._room.fire()  # a push() may be waiting
                self._dispatcher.dispatch(event)
        finally:
            self._is_pumping = False
        if self.connection.state is ConnectionState.CLOSED and self._layers.ended is None:
            self.abort()
        self.schedule_flush()

    def _now(self) -> Now:
        return Now(self._loop.time(), time.time())

    # Time: one timer per connection, armed for whatever is due first

    def _arm(self) -> None:
        if self._transport is None:
            return
        due_s = self._patience.due_s()
        if (wakeup_s := self.connection.next_wakeup_s()) is not None:
            due_s = min(due_s, wakeup_s)
        if self._timer is not None:
            if self._timer_due_s <= due_s:  # it looks again by itself; re-arming at each frame would cost more
                return
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._loop.call_at(due_s, self._time_up)

    def _time_up(self) -> None:
        self._timer = None
        now = self._now()
        self.connection.tick(now)
        self.pump()
        if self._transport is None or self.connection.state is ConnectionState.CLOSED:
            return
        exhausted = self._patience.exhausted(now.monotonic_s, self._buffered_bytes())
        if exhausted is None:
            self._arm()
            return
        reason, end_reason = exhausted
        logger.info("%s: closing %s: %s", self.connection_id, self.peer, reason)
        self.connection.lose(end_reason)
        self.pump()


def _set_socket_options(sock: socket.socket | None) -> None:
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The protocol's PING costs an SDK client an exception; the kernel's keep-alive costs nobody anything.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _address_text(peername: Any) -> str:
    if isinstance(peername, tuple):
        return f"{peername[0]}:{peername[1]}"
    return str(peername or "local")
