# SPDX-License-Identifier: MIT
"""Credit that a peer takes away, over real sockets: exactly its scope waits, and not for ever."""

from __future__ import annotations

from dataclasses import replace
from struct import pack

import pytest

from nnrp_wire.carrier import EndReason
from tests.nnrp_wire.carriers import NO_HOLD, Carrier, Place, listening
from tests.support import wire_frames as w
from tests.support.raw_peer import RawPeer

pytestmark = pytest.mark.asyncio

OPERATION_FLAG = 2


def credit(window: int, *, operation: int = 0) -> bytes:
    """CREDIT_UPDATE of an operation, or of session 1."""
    flags = OPERATION_FLAG if operation else 0
    return w.frame(w.CREDIT_UPDATE, pack("<QQHHIII", operation or 1, window, 0, 0, 0, flags, 0))


async def quiet(peer: RawPeer) -> None:
    """The peer's frames so far have been handled, and nothing came but the answer that says so."""
    peer.send(w.frame(w.PING))
    assert await peer.replies(1) == [w.PONG]


async def stream_without_credit(place: Place) -> RawPeer:
    """Operation 5 wants to send five events and its result, and may not."""
    peer = await place.opened(credit(0), w.submit(5, 1, b"stream 5"))
    await place.handler.until(lambda: place.handler.told[-1] == "submitted 5")
    await quiet(peer)
    assert place.handler.pushed == 0
    return peer


async def test_an_answer_waits_for_credit_and_is_whole(carrier: Carrier) -> None:
    async with listening(carrier) as place:
        peer = await stream_without_credit(place)
        peer.send(credit(1))
        assert await peer.replies(6) == [w.PARTIAL_RESULT] * 5 + [w.RESULT_PUSH]
        await peer.close()


async def test_only_the_scope_waits() -> None:
    async with listening() as place:
        peer = await place.opened(w.submit(5, 1, b"late"), w.submit(6, 2, b"late"))
        assert await peer.replies(2) == [w.PARTIAL_RESULT, w.PARTIAL_RESULT]
        peer.send(credit(0, operation=5))
        await quiet(peer)
        place.handler.release.set()
        reply = await peer.reply()
        assert (reply.kind, reply.frame_id) == (w.RESULT_PUSH, 2)
        await quiet(peer)
        peer.send(credit(1, operation=5))
        reply = await peer.reply()
        assert (reply.kind, reply.frame_id) == (w.RESULT_PUSH, 1)
        await peer.close()


async def test_who_waits_can_be_cancelled() -> None:
    async with listening() as place:
        peer = await stream_without_credit(place)
        peer.send(w.control(w.CANCEL, 5, 1))
        assert await peer.replies(1) == [w.RESULT_DROP_REASON]
        assert place.handler.reasons() == [EndReason.CANCELLED]
        await peer.close()


async def test_credit_that_never_comes_costs_the_operation_and_nothing_else() -> None:
    async with listening(limits=replace(NO_HOLD, max_hold_s=0.05)) as place:
        peer = await stream_without_credit(place)
        assert await peer.replies(1) == [w.RESULT_DROP_REASON]
        assert place.handler.reasons() == [EndReason.STALLED]
        peer.send(credit(1), w.submit(6, 2, b"stream 1"))
        assert await peer.replies(2) == [w.PARTIAL_RESULT, w.RESULT_PUSH]
        await peer.close()


async def test_the_end_of_the_connection_ends_the_wait() -> None:
    async with listening() as place:
        peer = await stream_without_credit(place)
        await peer.close()
        await place.handler.until(lambda: place.handler.reasons() == [EndReason.DISCONNECTED])


async def test_credit_given_and_taken_in_turns_loses_nothing() -> None:
    async with listening() as place:
        peer = await place.opened(credit(0), w.submit(5, 1, b"stream 200"))
        received: list[int] = []
        window = 1
        while w.RESULT_PUSH not in received:
            peer.send(credit(window), w.frame(w.PING))
            window = 1 - window
            received += await peer.replies(1)
            while received[-1] not in (w.PONG, w.RESULT_PUSH):
                received += await peer.replies(1)
        assert received.count(w.PARTIAL_RESULT) == 200
        await peer.close()
