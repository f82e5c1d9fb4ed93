# SPDX-License-Identifier: MIT
"""An NNRP/1 server carrier of our own: a sans-IO core and an asyncio shell.

Connections, sessions, operations, frames and their rules; nothing about what a body means. The profile above gives a
`Handler` to `open_listener()` and answers through `Session` and `Operation`.
"""

from nnrp_wire.carrier import Control, Ended, EndReason, Handler, Operation, OperationEnded, Session
from nnrp_wire.counts import FrameCounts
from nnrp_wire.endpoints import Endpoint, NetworkEndpoint, QuicEndpoint, UnixEndpoint
from nnrp_wire.limits import WireLimits
from nnrp_wire.listener import NnrpListener, open_listener

__all__ = [
    "Control",
    "EndReason",
    "Ended",
    "Endpoint",
    "FrameCounts",
    "Handler",
    "NetworkEndpoint",
    "NnrpListener",
    "Operation",
    "OperationEnded",
    "QuicEndpoint",
    "Session",
    "UnixEndpoint",
    "WireLimits",
    "open_listener",
]
