# SPDX-License-Identifier: MIT
"""Credit by scope, the order of updates, a replacement's place, what a refused frame is told: the core by bytes."""

from __future__ import annotations

from struct import pack

import pytest
from nnrp.core import ErrorCode

from nnrp_wire.carrier import Control
from nnrp_wire.counts import FrameCounts
from nnrp_wire.limits import WireLimits
from nnrp_wire.state import Controlled, SessionOpened
from tests.nnrp_wire.core_peer import START, START_UNIX_MS, CorePeer, later
from tests.support import wire_frames as w

CONNECTION, SESSION, OPERATION = 0, 1, 2
CONNECTION_FLAG, OPERATION_FLAG = 1, 2


def flow(
    scope: int,
    *,
    reason: int = 0,
    level: int = 0,
    credit: int | None = None,
    operation: int = 0,
    epoch: int = 0,
    session: int = 1,
) -> bytes:
    credits = [0, 0, 0]
    credits[scope] = credit or 0
    flags = 0 if credit is None else 1
    metadata = pack("<BBBBHHHHQIII", scope, reason, level, 0, *credits, 0, operation, 0, epoch, flags)
    return w.frame(w.FLOW_UPDATE, metadata, session=session, frame_id=1 if operation else 0)


def credit_update(window: int, *, scope_id: int = 1, flags: int = 0) -> bytes:
    return w.frame(w.CREDIT_UPDATE, pack("<QQHHIII", scope_id, window, 0, 0, 0, flags, 0))


def backpressure(level: int, *, scope_id: int = 1, flags: int = 0) -> bytes:
    return w.frame(w.BACKPRESSURE, pack("<QQHHIII", scope_id, 0, level, 0, 0, flags, 0))


def update(kind: int, *, sequence: int, operation: int = 11, frame_id: int = 1) -> bytes:
    metadata = pack("<QQHhQI", operation, sequence, 1, 0, START_UNIX_MS + 5000, 0)
    return w.frame(kind, metadata, frame_id=frame_id)


GRANT, REDUCE, PAUSE, RESUME, CONGESTION = range(5)
# Frames, then which of the operations 11 and 13 of session 1 and 21 of session 2 are held.
PRESSURES: dict[str, tuple[list[bytes], set[int]]] = {
    "a window of 0 closes the session": ([credit_update(0)], {11, 13}),
    "and credit opens it": ([credit_update(0), credit_update(1)], set()),
    "an operation's window": ([credit_update(0, scope_id=11, flags=OPERATION_FLAG)], {11}),
    "the connection's window": ([credit_update(0, flags=CONNECTION_FLAG)], {11, 13, 21}),
    "hard backpressure": ([backpressure(2)], {11, 13}),
    "harder backpressure": ([backpressure(3, scope_id=13, flags=OPERATION_FLAG)], {13}),
    "soft backpressure is advice": ([backpressure(1)], set()),
    "only credit lifts backpressure": ([backpressure(2), backpressure(1)], {11, 13}),
    "credit lifts backpressure": ([backpressure(2), credit_update(4)], set()),
    "scopes are independent": (
        [credit_update(0), credit_update(0, scope_id=11, flags=OPERATION_FLAG), credit_update(1)],
        {11},
    ),
    "flow: pause": ([flow(SESSION, reason=PAUSE)], {11, 13}),
    "flow: resume": ([flow(SESSION, reason=PAUSE), flow(SESSION, reason=RESUME)], set()),
    "flow: a valid credit of 0": ([flow(OPERATION, credit=0, operation=11)], {11}),
    "flow: a valid credit": ([flow(SESSION, credit=0), flow(SESSION, credit=2)], set()),
    "flow: a credit that is not valid is none": ([flow(SESSION)], set()),
    "flow: hard": ([flow(SESSION, level=2, reason=CONGESTION)], {11, 13}),
    "flow: soft is advice": ([flow(SESSION, level=1, reason=CONGESTION)], set()),
    "flow: hard with credit stays closed": ([flow(SESSION, level=2, credit=4)], {11, 13}),
    "flow: the connection, on session 0": ([flow(CONNECTION, reason=PAUSE, session=0)], {11, 13, 21}),
    "flow: a stale epoch is ignored": (
        [flow(SESSION, reason=PAUSE, epoch=5), flow(SESSION, credit=4, epoch=4)],
        {11, 13},
    ),
    "flow: the same epoch again counts": (
        [flow(SESSION, reason=PAUSE, epoch=5), flow(SESSION, credit=4, epoch=5)],
        set(),
    ),
    "an operation that has finished": ([credit_update(0, scope_id=12, flags=OPERATION_FLAG)], set()),
    "an unknown operation": ([credit_update(0, scope_id=99, flags=OPERATION_FLAG)], set()),
}  # fmt: skip


def two_sessions() -> CorePeer:
    """Session 1 with operations 11 and 13 live and 12 finished, session 2 with 21."""
    peer = CorePeer.busy()
    peer.send(w.submit(13, 3), w.session_open(), w.submit(21, 1, session=2))
    peer.replies()
    return peer


@pytest.mark.parametrize(("frames", "held"), PRESSURES.values(), ids=PRESSURES.keys())
def test_pressure_holds_exactly_its_scope(frames: list[bytes], held: set[int]) -> None:
    peer = two_sessions()
    peer.send(*frames)
    assert {number for number in (11, 13, 21) if peer.operations[number].is_held} == held


def test_opening_a_scope_is_an_event_once() -> None:
    peer = two_sessions()
    assert "reopened" not in peer.send(credit_update(0))
    assert peer.send(credit_update(1)).count("reopened") == 1
    assert "reopened" not in peer.send(credit_update(1))


def diagnostics(peer: CorePeer) -> list[tuple[int, int, bytes]]:
    """(code, related frame, text) of each ERROR_RECOVERABLE."""
    return [
        (int.from_bytes(reply.metadata[:4], "little"), int.from_bytes(reply.metadata[20:24], "little"), reply.body)
        for reply in peer.replies()
        if reply.kind == w.ERROR_RECOVERABLE
    ]


REFUSALS: dict[str, tuple[list[bytes], ErrorCode, int, bytes]] = {
    "two scopes at once": (
        [credit_update(0, flags=CONNECTION_FLAG | OPERATION_FLAG)],
        ErrorCode.MALFORMED_BODY,
        0,
        b"connection and operation scope at once",
    ),
    "credit of an unknown operation": (
        [credit_update(0, scope_id=99, flags=OPERATION_FLAG)],
        ErrorCode.INVALID_STATE,
        0,
        b"unknown operation",
    ),
    "stale credit": (
        [flow(SESSION, credit=1, epoch=5), flow(SESSION, credit=1, epoch=4)],
        ErrorCode.FRAME_EXPIRED,
        0,
        b"a newer credit update has been applied",
    ),
    "stale priority": (
        [update(w.PRIORITY_UPDATE, sequence=3), update(w.PRIORITY_UPDATE, sequence=2)],
        ErrorCode.FRAME_EXPIRED,
        1,
        b"a newer update of this kind has been applied",
    ),
    "stale deadline": (
        [update(w.DEADLINE, sequence=3), update(w.DEADLINE, sequence=2)],
        ErrorCode.FRAME_EXPIRED,
        1,
        b"a newer update of this kind has been applied",
    ),
    "cancel of an unknown operation": (
        [w.control(w.CANCEL, 99, 9)],
        ErrorCode.INVALID_STATE,
        9,
        b"unknown operation",
    ),
    "a replacement without an id": (
        [w.supersede(11, 0, 1)],
        ErrorCode.INVALID_STATE,
        1,
        b"the replacement's operation id is 0 or already used",
    ),
    "a replacement that has finished": (
        [w.supersede(11, 12, 1)],
        ErrorCode.INVALID_STATE,
        1,
        b"the replacement's operation id is 0 or already used",
    ),
}


@pytest.mark.parametrize(("frames", "code", "frame_id", "text"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_wrong_control_frame_costs_one_diagnostic(
    frames: list[bytes], code: ErrorCode, frame_id: int, text: bytes
) -> None:
    peer = two_sessions()
    peer.send(*frames)
    assert diagnostics(peer) == [(int(code), frame_id, text)]
    assert all(operation.ended is None for number, operation in peer.operations.items() if number != 12)


@pytest.mark.parametrize("sequences", [(1, 2), (2, 2), (5, 0), (0, 0)])
def test_updates_that_are_not_stale_count(sequences: tuple[int, int]) -> None:
    peer = two_sessions()
    peer.send(*(update(w.PRIORITY_UPDATE, sequence=sequence) for sequence in sequences))
    assert diagnostics(peer) == []


def test_sequences_of_kinds_and_operations_are_independent() -> None:
    peer = two_sessions()
    peer.send(
        update(w.PRIORITY_UPDATE, sequence=9),
        update(w.DEADLINE, sequence=1),
        update(w.PRIORITY_UPDATE, sequence=1, operation=13, frame_id=3),
    )
    assert diagnostics(peer) == []


# SUPERSEDE keeps a place


def full() -> CorePeer:
    """A session with room for two operations, both taken."""
    peer = CorePeer.open(max_in_flight=2)
    peer.send(w.submit(11, 1), w.submit(13, 3))
    return peer


def test_a_replacement_has_its_place_while_the_old_one_still_ends() -> None:
    peer = full()
    assert peer.send(w.supersede(11, 20, 1)) == ["ended 11 superseded"]
    assert peer.send(w.submit(20, 5)) == ["submitted 20/5 b'{}'"]
    assert peer.operations[20].replaces
    assert not peer.operations[13].replaces


def test_nobody_else_takes_the_place_that_is_kept() -> None:
    peer = full()
    peer.send(w.supersede(11, 20, 1))
    peer.operations[11].send_drop(2, b"", retryable=False)
    assert peer.send(w.submit(30, 6)) == []
    assert peer.send(w.submit(20, 5)) == ["submitted 20/5 b'{}'"]


def test_a_replacement_that_is_running_needs_no_place() -> None:
    peer = full()
    assert peer.send(w.supersede(11, 13, 1)) == ["ended 11 superseded"]
    peer.operations[11].send_drop(2, b"", retryable=False)
    assert peer.send(w.submit(30, 6)) == ["submitted 30/6 b'{}'"]


def test_a_place_is_not_kept_for_ever() -> None:
    peer = full()
    peer.send(w.supersede(11, 20, 1))
    peer.operations[11].send_drop(2, b"", retryable=False)
    assert peer.send(w.submit(30, 6), now=later(31)) == ["submitted 30/6 b'{}'"]


# Capabilities are the handler's to tell


def test_59_the_answer_has_the_handlers_tokens_sorted() -> None:
    peer = CorePeer()
    peer.connection.feed(w.hello() + w.session_open() + w.capabilities(w.CAPABILITY_NEGOTIATION, "object.delta"))
    session, control = None, None
    while (event := peer.connection.next_event(START)) is not None:
        if isinstance(event, SessionOpened):
            session = event.session
        if isinstance(event, Controlled):
            control = event.control
    peer.replies()
    assert session is not None
    assert isinstance(control, Control)

    session.send_capabilities(control, ("control.supersede", "control.cancel_abort", "control.supersede"))
    tail = b"\x14\0control.cancel_abort\x11\0control.supersede"
    metadata = pack("<HHHHQQII", 2, 2, 0, 0, 0, 0, len(tail), 0)
    assert peer.replies() == [w.Reply(w.CAPABILITY_NEGOTIATION, 1, 0, metadata, tail)]
    with pytest.raises(ValueError, match="unknown capability"):
        session.send_capabilities(control, ("control.fly",))


def test_diagnostics_to_a_peer_that_does_not_read_are_bounded() -> None:
    peer = CorePeer.open(WireLimits(max_refused_frames=10_000, max_unread_answer_bytes=5_000))
    peer.send(*(w.control(w.CANCEL, 99, 9) for _ in range(200)))
    assert peer.connection.fault == "the peer does not read its answers"


# Counts


def test_every_frame_is_counted_by_its_kind_and_each_refusal_by_its_code() -> None:
    counts = FrameCounts()
    peer = CorePeer(counts=counts)
    peer.send(
        w.hello(), w.session_open(), w.submit(11, 1), w.submit(11, 1), w.frame(0x7E), w.frame(0x7F), w.frame(w.PING),
        w.control(w.CANCEL, 11, 1), w.control(w.CANCEL, 99, 9), w.frame(w.FRAME_CANCEL, b"x"),
    )  # fmt: skip
    assert counts.received == {
        "client_hello": 1, "session_open": 1, "frame_submit": 2, "unknown": 2, "ping": 1, "cancel": 2,
        "frame_cancel": 1,
    }  # fmt: skip
    assert counts.refused == {
        ("frame_submit", "invalid_state"): 1,
        ("unknown", "invalid_state"): 2,
        ("cancel", "invalid_state"): 1,
        ("frame_cancel", "malformed_body"): 1,
    }


def test_what_is_stale_counts_as_that() -> None:
    counts = FrameCounts()
    peer = CorePeer(counts=counts)
    newer = w.SCHEDULING.pack(11, 2, 0, 0, START_UNIX_MS + 9000, 0)
    older = w.schedule(w.DEADLINE, 11, 1, START_UNIX_MS + 5000)
    peer.send(w.hello(), w.session_open(), w.submit(11, 1), w.frame(w.DEADLINE, newer, frame_id=1), older)
    assert counts.received["deadline"] == 2
    assert counts.refused == {("deadline", "frame_expired"): 1}
