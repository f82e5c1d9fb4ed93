# SPDX-License-Identifier: MIT
"""How long a peer is waited for: its hello, the rest of a packet, anything at all, and its reading. It has no clock.

The shell reports what happens and when; `due_s` says when to look again, `exhausted()` whether a wait is over.
"""

from __future__ import annotations

from nnrp_wire.carrier import EndReason
from nnrp_wire.connection import Connection
from nnrp_wire.limits import WireLimits
from nnrp_wire.state import ConnectionState

Exhausted = tuple[str, EndReason]


class Patience:
    """Of one connection. All times are monotonic seconds."""

    def __init__(self, connection: Connection, limits: WireLimits, now_s: float) -> None:
        self._connection = connection
        self._limits = limits
        self._made_s = self._active_s = now_s
        self._half_since_s: float | None = None
        self._packets_seen = 0
        self._stall_since_s: float | None = None
        self._stall_bytes = 0

    def active(self, now_s: float) -> None:
        """Something was received, or an operation has come to its end."""
        self._active_s = now_s

    def received(self, now_s: float, *, holds_half: bool) -> None:
        """Bytes were taken in; `holds_half`: the last packet among them is not complete."""
        self._active_s = now_s
        packets = self._connection.packets_received
        if not holds_half:
            self._half_since_s = None
        elif self._half_since_s is None or packets != self._packets_seen:
            self._half_since_s = now_s  # a trickle does not prolong the wait for one and the same packet
        self._packets_seen = packets

    def paused(self, now_s: float, buffered_bytes: int) -> None:
        """The peer takes no more for now."""
        self._stall_since_s = now_s
        self._stall_bytes = buffered_bytes

    def written_while_paused(self, size: int) -> None:
        self._stall_bytes += size

    def resumed(self) -> None:
        self._stall_since_s = None

    def due_s(self) -> float:
        limits = self._limits
        due = [self._active_s + limits.idle_timeout_s]
        if self._connection.state is ConnectionState.HELLO:
            due.append(self._made_s + limits.hello_timeout_s)
        if self._half_since_s is not None:
            due.append(self._half_since_s + limits.half_packet_timeout_s)
        if self._stall_since_s is not None:
            due.append(self._stall_since_s + limits.stall_s)
        return min(due)

    def exhausted(self, now_s: float, buffered_bytes: int) -> Exhausted | None:
        """Which wait is over, and how its operations end. `buffered_bytes`: written, but not taken by the peer."""
        limits = self._limits
        if self._does_not_read(now_s, buffered_bytes):
            return "it does not read", EndReason.STALLED
        if self._connection.state is ConnectionState.HELLO and now_s >= self._made_s + limits.hello_timeout_s:
            return "no CLIENT_HELLO in time", EndReason.DISCONNECTED
        if self._half_since_s is not None and now_s >= self._half_since_s + limits.half_packet_timeout_s:
            return "half a packet for too long", EndReason.DISCONNECTED
        if now_s >= self._active_s + limits.idle_timeout_s:
            if self._connection.is_idle:
                return "idle", EndReason.DISCONNECTED
            self._active_s = now_s  # work in flight is not idleness; look again later
        return None

    def _does_not_read(self, now_s: float, buffered_bytes: int) -> bool:
        if self._stall_since_s is None or now_s < self._stall_since_s + self._limits.stall_s:
            return False
        if buffered_bytes >= self._stall_bytes:
            return True
        self._stall_bytes, self._stall_since_s = buffered_bytes, now_s  # slow, but it reads
        return False
