# SPDX-License-Identifier: MIT
"""What an operation sends, how it ends, and the close of its session: the core by bytes; rule numbers in names."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest
from nnrp.core import PayloadKind, ResultFlags, ResultPushMetadata
from nnrp.runtime import TraceContextMetadata

from nnrp_wire.carrier import Ended, EndReason, OperationEnded
from nnrp_wire.limits import WireLimits
from nnrp_wire.operation import WireOperation
from nnrp_wire.state import ConnectionState
from tests.nnrp_wire.core_peer import START_UNIX_MS, CorePeer, later
from tests.support import wire_frames as w

RESULT = ResultPushMetadata(
    status_code=200,
    result_flags=ResultFlags.NONE,
    section_count=0,
    tile_count=0,
    active_profile_id=0,
    reserved0=0,
    inference_ms=1,
    queue_ms=2,
    server_total_ms=3,
    reserved1=0,
    tile_base_id=0,
    tile_index_bytes=0,
    payload_kind_bitmap=PayloadKind.STRUCTURED_EVENT,
    payload_frame_count=1,
)
RESULT_BYTES = pack("<HHHHHHHHHHIIQQBBHIHHIHH", 200, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 1, 0)
SOON = START_UNIX_MS + 5000


def drop_bytes(code: int, *, sequence: int = 1, flags: int = 1, length: int = 0) -> bytes:
    return pack("<QQHBBIQ", 11, sequence, code, 2, flags, length, 0)


def drop_reply(code: int, *, sequence: int = 1, flags: int = 1, diagnostic: bytes = b"") -> w.Reply:
    metadata = drop_bytes(code, sequence=sequence, flags=flags, length=len(diagnostic))
    return w.Reply(w.RESULT_DROP_REASON, 1, 1, metadata, diagnostic)


CLOSE_ACK = w.Reply(w.SESSION_CLOSE_ACK, 1, 0, pack("<BBHQI", 2, 0, 0, 9, 0), b"")


# What it sends


def test_41_to_44_a_whole_answer() -> None:
    peer = CorePeer.busy()
    operation = peer.operations[11]

    operation.send_partial(b"one")
    operation.send_progress(7, 5000)
    operation.send_partial(b"three")
    operation.send_progress(8, 0xFFFF)
    operation.send_result(RESULT, b"body")

    assert peer.replies() == [
        w.Reply(w.PARTIAL_RESULT, 1, 1, pack("<QQQQII", 11, 1, 0, 0, 3, 0), b"one"),
        w.Reply(w.PROGRESS, 1, 1, pack("<QQHHQI", 11, 1, 7, 5000, 0, 0), b""),
        w.Reply(w.PARTIAL_RESULT, 1, 1, pack("<QQQQII", 11, 2, 0, 0, 5, 0), b"three"),
        w.Reply(w.PROGRESS, 1, 1, pack("<QQHHQI", 11, 2, 8, 0xFFFF, 0, 0), b""),
        w.Reply(w.RESULT_PUSH, 1, 1, RESULT_BYTES, b"body"),
    ]


def test_44_a_drop_follows_the_partials_in_sequence() -> None:
    peer = CorePeer.busy()
    peer.operations[11].send_partial(b"one")
    peer.replies()

    peer.operations[11].send_drop(6, b"why", retryable=True)
    assert peer.replies() == [drop_reply(6, sequence=2, flags=3, diagnostic=b"why")]


Send = Callable[[WireOperation], None]
PARTIAL: Send = lambda operation: operation.send_partial(b"x")  # noqa: E731 - rows of a table
RESULT_PUSH: Send = lambda operation: operation.send_result(RESULT, b"")  # noqa: E731
DROP: Send = lambda operation: operation.send_drop(8, b"", retryable=False)  # noqa: E731


@pytest.mark.parametrize("first", [RESULT_PUSH, DROP], ids=["result", "drop"])
@pytest.mark.parametrize("second", [PARTIAL, RESULT_PUSH, DROP], ids=["partial", "result", "drop"])
def test_40_nothing_follows_a_terminal(first: Send, second: Send) -> None:
    peer = CorePeer.busy()
    operation = peer.operations[11]
    first(operation)
    peer.replies()

    with pytest.raises(OperationEnded, match="terminal already sent") as error:
        second(operation)
    operation.send_progress(7, 0)
    assert error.value.ended is None
    assert peer.replies() == []


def test_45_an_ended_operation_takes_one_drop_and_nothing_else() -> None:
    peer = CorePeer.busy()
    operation = peer.operations[11]
    operation.send_partial(b"before")
    peer.send(w.control(w.CANCEL, 11, 1, reason=1, diagnostic=b"user"))

    for refused in (PARTIAL, RESULT_PUSH):
        with pytest.raises(OperationEnded, match="cancelled") as error:
            refused(operation)
        assert error.value.ended == Ended(EndReason.CANCELLED, 1, b"user")
    operation.send_progress(7, 0)
    operation.send_drop(3, b"", retryable=False)
    with pytest.raises(OperationEnded):
        DROP(operation)

    assert [reply.kind for reply in peer.replies()] == [w.PARTIAL_RESULT, w.RESULT_DROP_REASON]


@pytest.mark.parametrize("event", [b"", b"x" * (64 * 1024 * 1024 - 79)], ids=["empty", "above 64 MiB"])
def test_4_41_events_that_no_client_takes(event: bytes) -> None:
    peer = CorePeer.busy()

    with pytest.raises(ValueError, match="bytes"):
        peer.operations[11].send_partial(event)
    assert peer.replies() == []


def test_4_a_result_that_no_client_takes() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        CorePeer.busy().operations[11].send_result(RESULT, b"x" * (64 * 1024 * 1024 - 100))


def test_44_a_drop_needs_a_code() -> None:
    with pytest.raises(ValueError, match="reason code"):
        CorePeer.busy().operations[11].send_drop(0, b"", retryable=False)


def test_55_75_frames_of_the_session_itself() -> None:
    peer = CorePeer.busy()
    (session,) = peer.connection.sessions
    metadata = TraceContextMetadata(5, 6, 7, 3, 1, 0)

    session.send_trace(metadata, 0)
    session.send_trace(metadata, 1)
    session.send_trace(metadata, 2)  # finished: the client would raise
    session.send_retry_after(30, 7, b"later")

    trace = pack("<QQQHHI", 5, 6, 7, 3, 1, 0)
    assert peer.replies() == [
        w.Reply(w.TRACE_CONTEXT, 1, 0, trace, b""),
        w.Reply(w.TRACE_CONTEXT, 1, 1, trace, b""),
        w.Reply(w.RETRY_AFTER, 1, 0, pack("<QQIIHBBI", 1, 1, 30, 0, 7, 2, 0, 5), b"later"),
    ]


# How it is ended


@pytest.mark.parametrize(
    ("frame", "ended"),
    [
        (w.control(w.CANCEL, 11, 1, reason=4, diagnostic=b"d"), Ended(EndReason.CANCELLED, 4, b"d")),
        (w.control(w.ABORT, 11, 1, reason=5), Ended(EndReason.ABORTED, 5)),
        (w.control(w.ABORT, 0, 0, reason=6), Ended(EndReason.ABORTED, 6)),
        (w.frame_cancel(1), Ended(EndReason.CANCELLED)),
        (w.supersede(11, 99, 1, diagnostic=b"new"), Ended(EndReason.SUPERSEDED, 2, b"new", replaced_by=99)),
    ],
)
def test_47_to_49_the_reason_is_told(frame: bytes, ended: Ended) -> None:
    peer = CorePeer.busy()
    peer.send(frame)

    assert peer.operations[11].ended == ended


def test_51_54_own_the_earlier_of_deadline_and_expiry_ends_it() -> None:
    peer = CorePeer.busy()
    peer.send(w.schedule(w.DEADLINE, 11, 1, SOON + 5000), w.schedule(w.EXPIRE_AT, 11, 1, SOON))

    assert peer.connection.next_wakeup_s() == pytest.approx(105.0)
    assert peer.tick(later(4.9)) == []
    assert peer.tick(later(5.1)) == ["ended 11 deadline"]
    assert peer.connection.next_wakeup_s() is None
    DROP(peer.operations[11])


def test_51_a_new_deadline_replaces_the_old_one() -> None:
    peer = CorePeer.busy()
    peer.send(w.schedule(w.DEADLINE, 11, 1, SOON), w.schedule(w.DEADLINE, 11, 1, SOON + 5000))

    assert peer.tick(later(6)) == []
    assert peer.tick(later(11)) == ["ended 11 deadline"]


def test_51_a_terminal_takes_its_deadline_along() -> None:
    peer = CorePeer.busy()
    peer.send(w.schedule(w.DEADLINE, 11, 1, SOON))
    RESULT_PUSH(peer.operations[11])

    assert peer.connection.next_wakeup_s() is None


def test_52_an_early_deadline_counts_from_its_own_time() -> None:
    peer = CorePeer.open()
    peer.send(w.schedule(w.DEADLINE, 20, 5, SOON))

    assert peer.send(w.submit(20, 5), now=later(1)) == ["submitted 20/5 b'{}'"]
    assert peer.tick(later(5.1)) == ["ended 20 deadline"]


def test_53_own_a_late_submit_is_taken_and_expires_at_once() -> None:
    peer = CorePeer.open()
    peer.send(w.schedule(w.DEADLINE, 20, 5, SOON))

    assert peer.send(w.submit(20, 5), w.submit(21, 6), now=later(9)) == [
        "submitted 20/5 b'{}'",
        "ended 20 deadline",
        "submitted 21/6 b'{}'",
    ]
    assert peer.connection.refused_frames == 0


def test_55_the_operations_trace_comes_before_the_sessions() -> None:
    peer = CorePeer.open()
    peer.send(w.trace(5, trace_id=2), w.trace(0, trace_id=1), w.submit(20, 5), w.submit(21, 6))
    traces = [peer.operations[number].trace for number in (20, 21)]

    assert [trace.trace_id for trace in traces if trace] == [2, 1]


def test_8_the_submits_header_trace_is_kept() -> None:
    peer = CorePeer.open()
    peer.send(w.submit(20, 5, trace_id=77))

    assert peer.operations[20].trace_id == 77


# Close of the session


def test_69_71_close_without_operations() -> None:
    peer = CorePeer.open()

    assert peer.send(w.session_close(drain_ms=5000)) == ["closed 1"]
    assert peer.replies() == [CLOSE_ACK]


@pytest.mark.parametrize(
    "frame", [w.session_close(), w.session_close(policy=1, drain_ms=5000)], ids=["timeout 0", "abort"]
)
def test_72_close_ends_operations_at_once_and_waits_for_their_drops(frame: bytes) -> None:
    peer = CorePeer.busy()

    assert peer.send(frame) == ["ended 11 session_closed"]
    assert peer.replies() == []
    peer.operations[11].send_drop(3, b"closed", retryable=False)
    assert peer.events() == ["closed 1"]
    assert peer.replies() == [drop_reply(3, diagnostic=b"closed"), CLOSE_ACK]


def test_69_close_with_drain_lets_operations_finish() -> None:
    peer = CorePeer.busy()

    assert peer.send(w.session_close(drain_ms=5000)) == []
    peer.operations[11].send_partial(b"still")
    RESULT_PUSH(peer.operations[11])
    assert peer.events() == ["closed 1"]
    assert [reply.kind for reply in peer.replies()] == [w.PARTIAL_RESULT, w.RESULT_PUSH, w.SESSION_CLOSE_ACK]


def test_69_a_drain_is_bounded_twice() -> None:
    peer = CorePeer.busy(WireLimits(max_close_drain_s=2, close_grace_s=1))
    peer.send(w.session_close(drain_ms=60_000))

    assert peer.tick(later(1.9)) == []
    assert peer.tick(later(2.1)) == ["ended 11 session_closed"]
    assert peer.tick(later(3.0)) == []
    assert peer.tick(later(3.2)) == ["closed 1"]  # a handler that never answers does not hold the client
    assert peer.replies() == [drop_reply(8), CLOSE_ACK]
    with pytest.raises(OperationEnded):
        DROP(peer.operations[11])


def test_69_70_a_closing_session_refuses_a_second_close_and_submits() -> None:
    peer = CorePeer.busy()
    peer.send(w.session_close(drain_ms=5000))

    assert peer.send(w.session_close(), w.submit(20, 5)) == []
    assert peer.connection.refused_frames == 2
    assert peer.send(w.control(w.CANCEL, 11, 1)) == ["ended 11 cancelled"]


def test_73_after_the_ack_nothing_is_sent_for_the_session() -> None:
    peer = CorePeer.open()
    (session,) = peer.connection.sessions
    peer.send(w.session_close())
    peer.replies()

    session.send_trace(TraceContextMetadata(1, 2, 0, 0, 0, 0), 0)
    session.send_retry_after(1, 7, b"")
    assert peer.send(w.frame(w.PING), w.submit(20, 5)) == []
    assert peer.replies() == []
    assert peer.connection.refused_frames == 2


# The connection is gone


def test_21_a_lost_connection_ends_everything_once() -> None:
    peer = CorePeer.busy()
    peer.send(w.submit(13, 3), w.control(w.CANCEL, 11, 1))
    peer.connection.lose()
    peer.connection.lose()

    assert peer.events() == ["ended 13 disconnected", "closed 1"]  # 11 had been told before
    for number in (11, 13):
        DROP(peer.operations[number])  # silently nothing
        with pytest.raises(OperationEnded):
            PARTIAL(peer.operations[number])
    assert peer.connection.state is ConnectionState.CLOSED
    assert peer.send(w.submit(20, 5)) == []


def test_74_shutdown_ends_operations_drops_the_rest_and_says_when_to_retry() -> None:
    peer = CorePeer.busy()
    peer.send(w.submit(13, 3))
    peer.connection.end_operations(EndReason.SHUTDOWN)
    assert peer.events() == ["ended 11 shutdown", "ended 13 shutdown"]
    peer.operations[13].send_drop(8, b"", retryable=True)
    peer.replies()

    peer.connection.turn_away()
    assert peer.replies() == [
        drop_reply(8),
        w.Reply(w.RETRY_AFTER, 1, 0, pack("<QQIIHBBI", 1, 1, 1000, 0, 7, 2, 0, 0), b""),
    ]
