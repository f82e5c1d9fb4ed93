# SPDX-License-Identifier: MIT
"""Closing an async generator to its end, even when the closing task is being cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import AsyncGeneratorType
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def closing(stream: AsyncGenerator[T, None]) -> AsyncIterator[AsyncGenerator[T, None]]:
    """Close `stream` on exit, to the end, even if cancelled meanwhile (a second cancel gives up).

    Closing an engine's stream aborts its request, and that abort awaits. When a stalled client's write fails and its
    cancellation arrives together, the cancellation lands inside the cleanup; without the shield the abort is lost.
    """
    try:
        yield stream
    finally:
        if not _is_over(stream):
            await _close(stream)


def _is_over(stream: AsyncGenerator[T, None]) -> bool:
    """Whether it has returned or raised, as when a cancellation came out of it. Closing that is turns of the loop."""
    return isinstance(stream, AsyncGeneratorType) and stream.ag_frame is None


async def _close(stream: AsyncGenerator[T, None]) -> None:
    closed = asyncio.ensure_future(stream.aclose())
    try:
        await asyncio.shield(closed)
    except asyncio.CancelledError:
        await closed
        raise
