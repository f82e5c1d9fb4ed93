# SPDX-License-Identifier: MIT
"""Waiting for a condition, under a timeout: the tests' only way to wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(condition: Callable[[], object], *, timeout_s: float = 5.0, every_s: float = 0.001) -> None:
    """Return as soon as `condition()`, asked so often, is true. Raises TimeoutError after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - the conditions are anybody's state; nobody sets an event for a test
            await asyncio.sleep(every_s)


def wait_until(condition: Callable[[], object], *, timeout_s: float = 30.0) -> None:
    """The same for threads: block until `condition()` is true. Raises TimeoutError."""
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up_s:
            raise TimeoutError("the condition did not come true")
        time.sleep(0.005)
