# SPDX-License-Identifier: MIT
"""A transport that only records what it is given."""

from __future__ import annotations

import asyncio


class RecordingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.written = 0
        self.is_aborted = False
        self.is_closed = False
        self.buffered = 0
        self.drained_per_look = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self.written += len(data)

    def take(self) -> bytes:
        """What was written since the last call."""
        data = b"".join(self.writes)
        self.writes.clear()
        return data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        self.buffered -= self.drained_per_look
        return self.buffered

    def is_closing(self) -> bool:
        return self.is_aborted or self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True
