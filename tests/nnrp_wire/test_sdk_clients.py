# SPDX-License-Identifier: MIT
"""Every transport over real sockets with the SDK's own native client: what the pinned SDK accepts is the contract."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from nnrp.client import SubmitIdentity, SubmitPolicy, SubmitRequest, TypedPayloadInputFrame, TypedPayloadSubmitInput
from nnrp.core import MessageType, PayloadKind
from nnrp.native import NativeRuntimeError
from nnrp.runtime import (
    BudgetMetadata,
    CacheMissReason,
    CacheReferenceMetadata,
    CapabilityMetadata,
    PressureMetadata,
    RouteHintMetadata,
)
from nnrp.schema import StreamSemantics

from nnrp_wire import EndReason, WireLimits
from tests.nnrp_wire.sdk_serving import Serving
from tests.support.sdk_client import SdkEvent, SdkOperation, SdkSession

PARTIAL, RESULT, DROP = MessageType.PARTIAL_RESULT, MessageType.RESULT_PUSH, MessageType.RESULT_DROP_REASON


def kinds(events: list[SdkEvent]) -> list[MessageType]:
    return [event.message_type for event in events]


# Streams


@pytest.mark.asyncio
async def test_64_concurrent_operations_of_one_session_each_in_order(serving: Serving) -> None:
    async with serving() as served:
        session = await served.open()

        def scenario() -> None:
            operations = [session.submit(b"stream 20") for _ in range(64)]
            for operation in operations:
                *partials, result = session.collect(operation)
                assert [event.payload for event in partials] == [b'{"n":%d}' % number for number in range(20)]
                assert [event.metadata.result_sequence for event in partials] == list(range(1, 21))
                assert result.message_type is RESULT
                assert result.metadata.status_code == 200

        await asyncio.to_thread(scenario)
        assert len(served.handler.operations) == 64


@pytest.mark.asyncio
async def test_several_sessions_share_a_connection_and_keep_apart(serving: Serving) -> None:
    async with serving() as served:

        def scenario() -> None:
            sessions = [served.client.open_session() for _ in range(8)]
            operations = [session.submit(b"stream 3") for session in sessions]
            for session, operation in zip(sessions, operations, strict=True):
                assert kinds(session.collect(operation)) == [PARTIAL] * 3 + [RESULT]

        await asyncio.to_thread(scenario)
        assert [session.session_id for session in served.handler.sessions] == list(range(1, 9))
        assert len({session.serial for session in served.handler.sessions}) == 8
        assert {session.transport for session in served.handler.sessions} == {served.transport}


@pytest.mark.asyncio
async def test_sessions_close_and_open_again_on_the_same_connection(serving: Serving) -> None:
    async with serving() as served:

        def scenario() -> None:
            for _ in range(3):
                session = served.client.open_session()
                assert kinds(session.collect(session.submit(b"stream 1"))) == [PARTIAL, RESULT]
                session.close()

        await asyncio.to_thread(scenario)
        assert [session.session_id for session in served.handler.sessions] == [1, 2, 3]
        assert served.handler.told.count("closed") == 3


@pytest.mark.asyncio
async def test_progress_trace_and_retry_after_reach_the_client(serving: Serving) -> None:
    async with serving() as served:
        session = await served.open()
        operation = await served.held(session)
        held = served.handler.operations[0]

        held.progress(5, 2500)
        held.session.retry_after(30, reason=4, diagnostic=b"soon")
        progress = await asyncio.to_thread(session.wait_for, MessageType.PROGRESS)
        retry = await asyncio.to_thread(session.wait_for, MessageType.RETRY_AFTER)
        assert (progress.metadata.stage_code, progress.metadata.percent_x100) == (5, 2500)
        assert (retry.metadata.retry_after_ms, retry.body) == (30, b"soon")
        await asyncio.to_thread(session.cancel, operation)
        await asyncio.to_thread(session.collect, operation)


# Ends


@dataclass(frozen=True)
class End:
    name: str
    send: Callable[[SdkSession, SdkOperation], None]
    reason: EndReason
    code: int


ENDS = [
    End("CANCEL", lambda session, operation: session.cancel(operation, diagnostic=b"enough"), EndReason.CANCELLED, 3),
    End("ABORT", lambda session, operation: session.abort(operation), EndReason.ABORTED, 3),
    End("FRAME_CANCEL", lambda session, operation: session.frame_cancel(operation), EndReason.CANCELLED, 3),
    End("CANCEL of the session", lambda session, _: session.cancel_all(), EndReason.CANCELLED, 3),
    End("SUPERSEDE", lambda session, old: session.supersede(old, session.reserve()), EndReason.SUPERSEDED, 2),
    End("DEADLINE", lambda session, operation: session.deadline(operation, unix_ms(0.05)), EndReason.DEADLINE, 1),
    End("EXPIRE_AT", lambda session, operation: session.expire_at(operation, unix_ms(0.05)), EndReason.DEADLINE, 1),
    End("EXPIRE_AT, flags 3", lambda session, operation: session.expire_at(operation, unix_ms(0.05), flags=3),
        EndReason.DEADLINE, 1),
]  # fmt: skip


def unix_ms(from_now_s: float) -> int:
    return int((time.time() + from_now_s) * 1000)


@pytest.mark.asyncio
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name)
async def test_an_end_reaches_the_handler_and_its_drop_the_client(serving: Serving, end: End) -> None:
    async with serving() as served:
        session = await served.open()
        operation = await served.held(session)

        await asyncio.to_thread(end.send, session, operation)
        (drop,) = await asyncio.to_thread(session.collect, operation)

        assert (drop.message_type, drop.metadata.drop_reason_code) == (DROP, end.code)
        assert drop.payload == end.reason.value.encode()
        assert served.handler.reasons() == [end.reason]
        # The session goes on.
        after = await asyncio.to_thread(session.submit, b"stream 1")
        assert kinds(await asyncio.to_thread(session.collect, after)) == [PARTIAL, RESULT]


@pytest.mark.asyncio
async def test_cancel_in_mid_stream_ends_one_stream_and_leaves_the_others(serving: Serving) -> None:
    async with serving() as served:
        session = await served.open()

        def scenario() -> None:
            first, second = session.submit(b"drip"), session.submit(b"drip")
            next(session.events(first))
            session.cancel(first)
            assert session.collect(first)[-1].message_type is DROP
            events = session.events(second)
            assert [next(events).message_type for _ in range(20)] == [PARTIAL] * 20
            session.cancel_all()
            assert session.collect(second)[-1].message_type is DROP

        await asyncio.to_thread(scenario)
        assert served.handler.reasons() == [EndReason.CANCELLED] * 2


@pytest.mark.asyncio
async def test_the_in_flight_limit_is_enforced_and_announced(serving: Serving) -> None:
    async with serving(WireLimits(max_in_flight=3)) as served:
        with pytest.raises(NativeRuntimeError):
            await served.open(max_in_flight=4)
        session = await served.open(max_in_flight=2)

        def scenario() -> None:
            first, second = session.submit(b"hold"), session.submit(b"hold")
            (refusal,) = session.collect(session.submit(b"stream 1"))
            assert (refusal.message_type, refusal.metadata.drop_reason_code) == (DROP, 4)
            assert session.wait_for(MessageType.RETRY_AFTER).metadata.retry_after_ms == 1000
            session.cancel(first)
            assert session.collect(first)[-1].message_type is DROP
            assert kinds(session.collect(session.submit(b"stream 1"))) == [PARTIAL, RESULT]
            session.cancel(second)
            session.collect(second)

        await asyncio.to_thread(scenario)


# Deadlines


@pytest.mark.asyncio
async def test_a_deadline_may_come_before_its_submit(serving: Serving) -> None:
    async with serving() as served:
        session = await served.open()

        def scenario() -> None:
            held, quick = session.reserve(), session.reserve()
            session.deadline(held, unix_ms(0.5))
            session.deadline(quick, unix_ms(60))
            session.submit(b"hold", ids=held)
            session.submit(b"stream 1", ids=quick)
            assert kinds(session.collect(quick)) == [PARTIAL, RESULT]
            partial, drop = session.collect(held)
            assert partial.message_type is PARTIAL
            assert drop.metadata.drop_reason_code == 1

        await asyncio.to_thread(scenario)
        assert served.handler.reasons() == [EndReason.DEADLINE]


@pytest.mark.asyncio
async def test_the_sdks_own_submit_with_timeout(serving: Serving) -> None:
    async with serving() as served:
        session = await served.open()

        def scenario() -> None:
            frame = TypedPayloadInputFrame(
                0, PayloadKind.STRUCTURED_EVENT, b"stream 0", stream_semantics=StreamSemantics.SNAPSHOT
            )
            request = SubmitRequest.typed_payload(
                TypedPayloadSubmitInput(SubmitIdentity(1, 1), SubmitPolicy(), (frame,))
            )
            result = session.native.submit_and_poll_result(request, timeout_ms=5000)
            assert result.operation_id == 1

        await asyncio.to_thread(scenario)


# Trace and other control


@pytest.mark.asyncio
async def test_trace_in_both_scopes(serving: Serving) -> None:
    async with serving(WireLimits(trace_hold_s=0.5)) as served:
        session = await served.open()

        def scenario() -> None:
            session.trace(0x51, 1)
            first = session.submit(b"hold")
            second = session.submit(b"hold", trace_id=0x99)
            session.trace(0x52, 2, second)
            for operation in (first, second):
                next(session.events(operation))

        await asyncio.to_thread(scenario)
        handler = served.handler
        of = {operation.operation_id: operation for operation in handler.operations}
        assert [(of[number].trace.trace_id) for number in (1001, 1002)] == [0x51, 0x52]  # type: ignore[union-attr]
        assert [of[number].trace_id for number in (1001, 1002)] == [0, 0x99]
        assert handler.traces == [(0x51, None), (0x52, 1002)]
        assert handler.told[1] == "submitted 1002"  # its trace ended the wait; 1001 waited for one that never came


@pytest.mark.asyncio
async def test_control_that_only_the_profile_understands(serving: Serving) -> None:
    async with serving() as served:
        session = await served.open()
        operation = await served.held(session)
        tokens = b"\x15\x00control.trace_context"

        def scenario() -> None:
            session.native.update_budget(BudgetMetadata(operation.operation_id, 1, 2, 3, 4, 0))
            session.native.send_route_hint(RouteHintMetadata(operation.operation_id, 1, 0, 0, 0, 0, 0))
            session.native._send_runtime_frame(MessageType.CREDIT_UPDATE, PressureMetadata(1, 4, 0, 0, 0, 0))
            session.native.negotiate_capabilities(CapabilityMetadata(2, 1, 0, 0, 0, 0, len(tokens), 0), tokens)
            session.native.reference_cache(CacheReferenceMetadata(1, 2, 3, 2, 0, 0, 0, 0, 0, 0))
            answer = session.wait_for(MessageType.CAPABILITY_NEGOTIATION)
            assert b"control.cancel_abort" in answer.body
            miss = session.wait_for(MessageType.CACHE_MISS)
            assert (miss.metadata.cache_key_hi, miss.metadata.miss_reason) == (2, CacheMissReason.NOT_FOUND)
            session.cancel(operation)
            session.collect(operation)

        await asyncio.to_thread(scenario)
        assert [control.message_type for control in served.handler.controls] == [
            MessageType.BUDGET_UPDATE,
            MessageType.ROUTE_HINT,
            MessageType.CREDIT_UPDATE,
            MessageType.CAPABILITY_NEGOTIATION,
            MessageType.CACHE_REFERENCE,
        ]
