# SPDX-License-Identifier: MIT
"""How sessions and connections of SDK clients end, on every transport: close, drain, failures."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

import pytest
from nnrp.core import MessageType
from nnrp.native import NativeRuntimeError

from nnrp_wire import EndReason, WireLimits
from tests.nnrp_wire.sdk_serving import Serving
from tests.support.sdk_client import SdkClient, SdkEvent

PARTIAL, RESULT = MessageType.PARTIAL_RESULT, MessageType.RESULT_PUSH


def kinds(events: list[SdkEvent]) -> list[MessageType]:
    return [event.message_type for event in events]


# Close


@pytest.mark.asyncio
async def test_close_with_operations_in_flight(serving: Serving) -> None:
    async with serving(WireLimits(close_grace_s=5)) as served:
        session = await served.open()
        await served.held(session)
        await served.held(session)

        started_s = time.monotonic()
        await asyncio.to_thread(session.close)

        assert time.monotonic() - started_s < served.listener.limits.close_grace_s
        assert served.handler.reasons() == [EndReason.SESSION_CLOSED] * 2
        assert served.handler.told[-1] == "closed"
        assert served.listener.operations_in_flight == 0


@pytest.mark.asyncio
async def test_close_does_not_wait_for_a_handler_that_never_answers(serving: Serving) -> None:
    async with serving(WireLimits(close_grace_s=0.1)) as served:
        session = await served.open()
        operation = await asyncio.to_thread(session.submit, b"mute")
        await asyncio.to_thread(lambda: next(session.events(operation)))

        await asyncio.to_thread(session.close)
        assert served.handler.told[-2:] == ["ended 1001", "closed"]
        # The connection goes on.
        assert kinds(await asyncio.to_thread(lambda: again(served.client))) == [PARTIAL, RESULT]


def again(client: SdkClient) -> list[SdkEvent]:
    session = client.open_session()
    return session.collect(session.submit(b"stream 1"))


# Faults


@pytest.mark.asyncio
async def test_a_failing_handler_costs_one_operation(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as served:
        session = await served.open()
        with caplog.at_level(logging.ERROR, logger="nnrp_wire"):
            operation = await asyncio.to_thread(session.submit, b"raise")
            (drop,) = await asyncio.to_thread(session.collect, operation)

        assert (drop.metadata.drop_reason_code, drop.payload) == (8, b"")
        assert "scripted failure" in caplog.text  # with its traceback
        assert kinds(await asyncio.to_thread(lambda: session.collect(session.submit(b"stream 1")))) == [PARTIAL, RESULT]


@pytest.mark.asyncio
async def test_an_event_larger_than_every_buffer_arrives_whole(serving: Serving) -> None:
    async with serving() as served:
        session = await served.open()
        operation = await served.held(session)
        event = bytes(range(256)) * 4 * 8192  # 8 MiB

        await served.handler.operations[0].push(event)
        assert (await asyncio.to_thread(lambda: next(session.events(operation)))).body == event
        await asyncio.to_thread(session.cancel, operation)
        await asyncio.to_thread(session.collect, operation)


# Drain


@pytest.mark.asyncio
async def test_drain_lets_operations_finish_and_refuses_new_ones(serving: Serving) -> None:
    async with serving() as served:
        session = await served.open()
        operation = await asyncio.to_thread(session.submit, b"late")
        await asyncio.to_thread(lambda: next(session.events(operation)))

        drain = asyncio.create_task(served.listener.drain(10))
        await asyncio.sleep(0)
        (refusal,) = await asyncio.to_thread(lambda: session.collect(session.submit(b"stream 1")))
        assert refusal.metadata.drop_reason_code == 4
        with pytest.raises(NativeRuntimeError):
            await served.open()
        served.handler.release.set()
        assert kinds(await asyncio.to_thread(session.collect, operation)) == [RESULT]
        await drain

        assert served.listener.connection_count == 0
        assert served.handler.ended == []
        close_quietly(served.client)


@pytest.mark.asyncio
async def test_drain_ends_what_is_not_finished_in_time(serving: Serving) -> None:
    async with serving() as served:
        session = await served.open()
        operation = await served.held(session)

        started_s = time.monotonic()
        await served.listener.drain(0.05)
        (drop,) = await asyncio.to_thread(session.collect, operation)

        assert (drop.metadata.drop_reason_code, drop.payload) == (8, b"shutdown")
        assert served.handler.reasons() == [EndReason.SHUTDOWN]
        assert time.monotonic() - started_s < 5
        close_quietly(served.client)


def close_quietly(client: SdkClient) -> None:
    """The server has gone first: the SDK's close reports that."""
    with suppress(NativeRuntimeError):
        client.close()
