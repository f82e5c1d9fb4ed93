# SPDX-License-Identifier: MIT
"""Every bound of the carrier, in one frozen record. It reads no environment; whoever opens a listener fills it in."""

from __future__ import annotations

from dataclasses import dataclass

from nnrp.capabilities import PREVIEW4_CONTROL_CAPABILITY_TOKENS, PREVIEW4_OBJECT_CAPABILITY_TOKENS

MAX_PACKET_BYTES = 64 * 1024 * 1024  # the protocol's own maximum, both directions

# The closed list of a capability body; payload tokens are not in it.
KNOWN_CAPABILITY_TOKENS = frozenset(PREVIEW4_CONTROL_CAPABILITY_TOKENS + PREVIEW4_OBJECT_CAPABILITY_TOKENS)


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds of one listener. Times are seconds, sizes bytes, counts per the scope in the name."""

    hello_timeout_s: float = 10.0
    half_packet_timeout_s: float = 30.0
    idle_timeout_s: float = 600.0  # nothing received and no operation in flight
    stall_s: float = 30.0  # the peer takes none of the bytes we hold for it
    max_hold_s: float = 60.0  # an event waits at most so long for the credit its peer has taken away
    close_grace_s: float = 1.0  # for the drops of operations ended by SESSION_CLOSE or shutdown
    max_close_drain_s: float = 25.0  # SDK clients give up their close after 30 s
    trace_hold_s: float = 0.002  # a submit waits this long for the TRACE_CONTEXT sent right after it; 0: no wait
    max_connections: int = 1024
    max_sessions_per_connection: int = 1024
    max_session_ids_per_connection: int = 65_536  # ids are never reused within a connection
    max_in_flight: int = 64  # operations of one session without a terminal; a client may ask for fewer
    replacement_wait_s: float = 30.0  # a SUPERSEDE keeps a place so long for the operation it announces
    max_early_traces: int = 64  # per session: TRACE_CONTEXT before its submit
    max_used_operations: int = 65_536  # per session: remembered finished operations; the oldest half is forgotten
    max_refused_frames: int = 256  # per connection, then it is closed
    max_packet_bytes: int = 16 * 1024 * 1024
    write_high_water_bytes: int = 256 * 1024  # push() waits above it
    max_unread_answer_bytes: int = 1024 * 1024  # answers to a peer that asks but does not read
    retry_after_ms: int = 1000  # told to a client over its in-flight limit or during a drain
    backlog: int = 128
    # SDK clients give a QUIC connection up after 30 s without a packet; a vanished client is noticed after as long.
    quic_idle_s: float = 30.0
    quic_keep_alive_s: float = 10.0
    accept_retry_s: float = 0.5  # accepting rests so long when the system has no descriptor or memory left
    reopen_first_s: float = 0.5  # before a listener that died is opened again; doubled up to
    reopen_longest_s: float = 30.0
    socket_check_s: float = 5.0  # how often a listener looks whether its socket file is still there

    def __post_init__(self) -> None:
        if not 4096 <= self.max_packet_bytes <= MAX_PACKET_BYTES:
            raise ValueError(f"max_packet_bytes must be 4096..{MAX_PACKET_BYTES}")
        if not 1 <= self.max_in_flight <= 0xFFFF:
            raise ValueError("max_in_flight must be 1..65535")
