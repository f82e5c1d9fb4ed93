# SPDX-License-Identifier: MIT
"""How many frames peers have sent, and how many of them were refused. Every key is of a closed set."""

from __future__ import annotations

from collections import Counter

from nnrp.core import ErrorCode, MessageType

UNKNOWN = "unknown"
_KINDS = {int(kind): kind.name.lower() for kind in MessageType}


class FrameCounts:
    """Of all connections of a listener, since it was made. Kinds and codes are the protocol's names in lower case."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()  # by kind
        self.refused: Counter[tuple[str, str]] = Counter()  # by kind and code; what is stale has frame_expired

    def receive(self, message_type: int) -> None:
        self.received[_KINDS.get(message_type, UNKNOWN)] += 1

    def refuse(self, message_type: int, code: ErrorCode) -> None:
        self.refused[_KINDS.get(message_type, UNKNOWN), code.name.lower()] += 1
