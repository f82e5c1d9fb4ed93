# SPDX-License-Identifier: MIT
"""The asyncio shell of one connection: bytes, time and handler calls around the sans-IO core.

A Protocol for any stream transport. It decides nothing about frames; it adds one write per turn of the event loop,
backpressure, timeouts, and the translation of the core's events into handler calls.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Protocol, assert_never, cast

from nnrp.runtime import ResultDropReasonCode

from nnrp_wire.carrier import EndReason, Handler, OperationEnded
from nnrp_wire.connection import Connection
from nnrp_wire.deadlines import Now
from nnrp_wire.handles import OperationHandle, Pulse, SessionHandle
from nnrp_wire.limits import WireLimits
from nnrp_wire.operation import WireOperation
from nnrp_wire.session import WireSession
from nnrp_wire.state import (
    ConnectionState,
    Controlled,
    Event,
    Interrupted,
    OperationState,
    SessionClosed,
    SessionOpened,
    Submitted,
    Traced,
)

logger = logging.getLogger(__name__)

_connection_numbers = count(1)  # for ids in logs, unique in the process


class Owner(Protocol):
    """The listener as its connections see it."""

    def admit(self, shell: ConnectionShell) -> bool:
        """Whether this connection may live; counts it if so."""

    def changed(self) -> None:
        """An operation has its terminal."""

    def gone(self, shell: ConnectionShell) -> None: ...


class ConnectionShell(asyncio.Protocol):
    """One peer on a stream transport."""

    def __init__(self, owner: Owner, handler: Handler, limits: WireLimits, transport_name: str) -> None:
        self.connection_id = f"c{next(_connection_numbers)}"
        self.transport_name = transport_name
        self.peer = ""
        self.connection = Connection(limits, self.connection_id)
        self._owner, self._handler, self._limits = owner, handler, limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None  # None: not admitted, or lost
        self._sessions: dict[WireSession, SessionHandle] = {}
        self._held: dict[OperationHandle, asyncio.TimerHandle] = {}
        self._room = Pulse()
        self._is_paused = False
        self._is_pumping = False
        self._flush_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._made_s = self._active_s = self._loop.time()
        self._half_since_s: float | None = None
        self._packets_seen = 0
        self._stall_since_s: float | None = None
        self._stall_bytes = 0

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
        self._active_s = self._loop.time()
        self.connection.feed(data)
        self.pump()
        self._watch_half_packet()
        self._arm()

    def connection_lost(self, _exc: Exception | None) -> None:
        if self._transport is None:
            return
        self.connection.lose(EndReason.DISCONNECTED)
        self.pump()
        self._transport = None
        self._room.fire()
        for timer in (self._timer, self._flush_handle):
            if timer is not None:
                timer.cancel()
        self._owner.gone(self)
        logger.debug("%s: connection lost", self.connection_id)

    def pause_writing(self) -> None:
        self._is_paused = True
        self._stall_since_s = self._loop.time()
        self._stall_bytes = self._buffered_bytes()
        self._arm()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._stall_since_s = None
        self.connection.peer_is_reading()
        self._room.fire()

    # Writing; the handles use these

    @property
    def is_full(self) -> bool:
        return self._is_paused or self.connection.output_bytes >= self._limits.write_high_water_bytes

    async def writable(self) -> None:
        """Wait for room; the caller looks again, since others wait too."""
        if not self._is_paused:
            self._flush()
        if self._is_paused:
            await self._room.wait()
        else:
            await asyncio.sleep(0)  # a handler that never waits otherwise must not keep the loop for itself

    def schedule_flush(self) -> None:
        # One write per turn of the loop: what all operations push in this turn leaves in one segment.
        if self._flush_handle is None and self._transport is not None:
            self._flush_handle = self._loop.call_soon(self._flush)

    def terminal_sent(self) -> None:
        self._active_s = self._loop.time()
        self.pump()  # the last terminal may have closed its session
        self._arm()
        self._owner.changed()

    def _flush(self) -> None:
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        data = self.connection.take_output()
        if not data or self._transport is None or self._transport.is_closing():
            return
        if self._is_paused:
            self._stall_bytes += len(data)
        self._transport.write(data)
        if not self._is_paused:
            self.connection.peer_is_reading()

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
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Events

    def pump(self) -> None:
        """Hand the core's events to the handler until there are none."""
        if self._is_pumping:  # a handler call ended an operation: the outer loop goes on
            return
        self._is_pumping = True
        try:
            while (event := self.connection.next_event(self._now())) is not None:
                self._dispatch(event)
        finally:
            self._is_pumping = False
        if self.connection.state is ConnectionState.CLOSED:
            self.abort()
        self.schedule_flush()

    def _now(self) -> Now:
        return Now(self._loop.time(), time.time())

    def _dispatch(self, event: Event) -> None:
        match event:
            case SessionOpened(core):
                session = self._sessions[core] = SessionHandle(core, self)
                self._call(None, self._handler.session_opened, session)
            case Submitted(operation):
                self._submitted(operation)
            case Interrupted(operation):
                self._room.fire()  # its push() may be waiting
                self._interrupted(operation)
            case Traced(core, metadata, operation):
                self._about(self._handler.traced, core, metadata, operation)
            case Controlled(core, control, operation):
                self._about(self._handler.controlled, core, control, operation)
            case SessionClosed(core):
                self._call(None, self._handler.session_closed, self._sessions.pop(core))
            case _:
                assert_never(event)

    def _submitted(self, core: WireOperation) -> None:
        session = self._sessions[core.session]
        operation = session.operations[core.operation_id] = OperationHandle(core, session, self)
        if core.own_trace is not None or self._limits.trace_hold_s <= 0:
            self._call(operation, self._handler.submitted, operation)
            return
        # SDK clients can send the trace of an operation only after its submit.
        self._held[operation] = self._loop.call_later(self._limits.trace_hold_s, self._release, operation)

    def _release(self, operation: OperationHandle) -> None:
        """Tell the handler of a submit that waited for its trace; the rest of its events then follow in order."""
        timer = self._held.pop(operation, None)
        if timer is not None:
            timer.cancel()
            self._call(operation, self._handler.submitted, operation)

    def _interrupted(self, core: WireOperation) -> None:
        operation = self._sessions[core.session].operations.get(core.operation_id)
        if operation is None:  # the handler has sent its terminal meanwhile
            return
        self._release(operation)
        self._call(operation, self._handler.operation_ended, operation)
        if core.state is OperationState.GONE:
            operation.session.operations.pop(core.operation_id, None)

    def _about(
        self, method: Callable[[Any, Any, Any], None], core: WireSession, what: Any, target: WireOperation | None
    ) -> None:
        session = self._sessions[core]
        operation = None if target is None else session.operations.get(target.operation_id)
        if target is not None and operation is None:
            return
        if operation is not None:
            self._release(operation)
        self._call(operation, method, session, what, operation)

    def _call(self, operation: OperationHandle | None, method: Callable[..., None], *args: Any) -> None:
        """A handler's failure costs the operation concerned, never the connection."""
        try:
            method(*args)
        except Exception:
            logger.exception("%s: the handler failed", self.connection_id)
            if operation is not None:
                with suppress(OperationEnded):
                    operation.drop_now(ResultDropReasonCode.TRANSPORT_CLOSED)

    # Time: one timer per connection, armed for whatever is due first

    def _watch_half_packet(self) -> None:
        if not self.connection.holds_half_packet:
            self._half_since_s = None
        elif self._half_since_s is None or self.connection.packets_received != self._packets_seen:
            self._half_since_s = self._loop.time()
        self._packets_seen = self.connection.packets_received

    def _arm(self) -> None:
        if self._transport is None:
            return
        due_s = self._due_s()
        if self._timer is not None:
            if self._timer.when() <= due_s:  # it looks again by itself; re-arming at each frame would cost more
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._time_up)

    def _due_s(self) -> float:
        limits = self._limits
        due = [self._active_s + limits.idle_timeout_s]
        if self.connection.state is ConnectionState.HELLO:
            due.append(self._made_s + limits.hello_timeout_s)
        if self._half_since_s is not None:
            due.append(self._half_since_s + limits.half_packet_timeout_s)
        if self._stall_since_s is not None:
            due.append(self._stall_since_s + limits.stall_s)
        if (wakeup_s := self.connection.next_wakeup_s()) is not None:
            due.append(wakeup_s)
        return min(due)

    def _time_up(self) -> None:
        self._timer = None
        now = self._now()
        self.connection.tick(now)
        self.pump()
        if self._transport is None or self.connection.state is ConnectionState.CLOSED:
            return
        if self._peer_does_not_read(now.monotonic_s):
            self._give_up("it does not read", EndReason.STALLED)
        elif (reason := self._silence(now.monotonic_s)) is not None:
            self._give_up(reason, EndReason.DISCONNECTED)
        else:
            self._arm()

    def _give_up(self, reason: str, end_reason: EndReason) -> None:
        logger.info("%s: closing %s: %s", self.connection_id, self.peer, reason)
        self.connection.lose(end_reason)
        self.pump()

    def _silence(self, now_s: float) -> str | None:
        """Which wait on the peer is over."""
        limits = self._limits
        if self.connection.state is ConnectionState.HELLO and now_s >= self._made_s + limits.hello_timeout_s:
            return "no CLIENT_HELLO in time"
        if self._half_since_s is not None and now_s >= self._half_since_s + limits.half_packet_timeout_s:
            return "half a packet for too long"
        if now_s >= self._active_s + limits.idle_timeout_s:
            if self.connection.is_idle:
                return "idle"
            self._active_s = now_s  # work in flight is not idleness; look again later
        return None

    def _peer_does_not_read(self, now_s: float) -> bool:
        if self._stall_since_s is None or now_s < self._stall_since_s + self._limits.stall_s:
            return False
        buffered = self._buffered_bytes()
        if buffered >= self._stall_bytes:
            return True
        self._stall_bytes, self._stall_since_s = buffered, now_s  # slow, but it reads
        return False


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
