# SPDX-License-Identifier: MIT
"""PROGRESS for an operation: its stages where the client asked for them, and a sign of life while it is silent."""

from __future__ import annotations

import asyncio

from nnrp_openai.profile import Stage
from nnrp_wire.carrier import Operation


class Progress:
    """Stages are sent as they are reached if `announces`; while nothing else is sent, the last one every `interval_s`.

    Without `announces` and `interval_s` nothing is ever sent: published wire cases allow no frame nobody asked for.
    """

    def __init__(self, operation: Operation, *, announces: bool, interval_s: float | None) -> None:
        self._operation = operation
        self._announces = announces
        self._interval_s = interval_s
        self._stage = Stage.ADMITTED
        self._loop = asyncio.get_running_loop()
        self._sent_s = self._loop.time()
        self._timer = self._loop.call_later(interval_s, self._time_up) if interval_s else None

    def reach(self, stage: Stage) -> None:
        """A stage already reached is no news."""
        if stage is self._stage and stage is not Stage.ADMITTED:
            return
        self._stage = stage
        if self._announces:
            self._send()

    def sent(self) -> None:
        """An event went out."""
        if self._timer is not None:  # who else would look at it
            self._sent_s = self._loop.time()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self) -> None:
        self._operation.progress(self._stage)
        self.sent()

    def _time_up(self) -> None:
        assert self._interval_s is not None
        silent_s = self._loop.time() - self._sent_s
        if silent_s >= self._interval_s:
            self._send()
            silent_s = 0.0
        self._timer = self._loop.call_later(self._interval_s - silent_s, self._time_up)
