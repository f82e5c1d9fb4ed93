# SPDX-License-Identifier: MIT
"""Everything a peer can make grow is bounded; and how a stream is cut into reads changes nothing."""

from __future__ import annotations

import gc
import time
from random import Random

import pytest

from nnrp_wire.deadlines import Timers
from nnrp_wire.finished import FinishedOperations
from nnrp_wire.limits import WireLimits
from nnrp_wire.state import ConnectionState
from tests.nnrp_wire.core_peer import START, START_UNIX_MS, CorePeer, later
from tests.support import wire_frames as w

CONVERSATION = (
    w.probe(),
    w.hello(),
    w.session_open(),
    w.session_open(),
    w.trace(0),
    w.trace(1, trace_id=2),
    w.submit(11, 1, b"first"),
    w.schedule(w.DEADLINE, 12, 2, START_UNIX_MS + 1000),
    w.submit(12, 2, b"second" * 100),
    w.submit(11, 1, b"other session", session=2),
    w.frame(0x7E),
    w.control(w.CANCEL, 11, 1, diagnostic=b"why"),
    w.capabilities(w.CAPABILITY_NEGOTIATION, "control.supersede"),
    w.frame(w.PING),
    w.frame_cancel(2),
    w.control(w.ABORT, 0, 0, session=2),
    w.session_close(policy=1),
    w.session_close(session=2),
)


@pytest.mark.parametrize("size", [1, 7, 39, 41, 113])
def test_a_conversation_in_pieces_is_the_same_conversation(size: int) -> None:
    whole, pieces = CorePeer(), CorePeer()
    stream = b"".join(CONVERSATION)

    expected = whole.send(stream)
    seen: list[str] = []
    for position in range(0, len(stream), size):
        seen += pieces.send(stream[position : position + size])

    assert [event.split(" b'")[0] for event in expected] == [
        "opened 1",
        "opened 2",
        "traced session abc",
        "submitted 11/1",
        "traced 11 2",
        "submitted 12/2",
        "submitted 11/1",
        "ended 11 cancelled",
        "control CAPABILITY_NEGOTIATION -",
        "ended 12 cancelled",
        "ended 11 aborted",
    ]  # the closes wait for the drops
    assert seen == expected
    assert pieces.replies() == whole.replies()
    assert pieces.connection.refused_frames == whole.connection.refused_frames == 1


def test_events_are_told_before_the_next_frame_takes_effect() -> None:
    peer = CorePeer.open()
    peer.connection.feed(w.submit(11, 1) + w.control(w.CANCEL, 11, 1))
    first = peer.connection.next_event(START)

    assert first is not None
    assert peer.connection.sessions[0].operations[11].ended is None


def test_refused_frames_are_counted_and_end_the_connection() -> None:
    peer = CorePeer.open(WireLimits(max_refused_frames=3))

    peer.send(w.frame(0x7E), w.frame(0x7E))
    assert peer.connection.state is ConnectionState.OPEN
    assert peer.send(w.frame(0x7E)) == ["closed 1"]
    assert peer.connection.fault == "3 refused frames"


def test_4_the_packet_limit_is_exact_and_read_from_the_header() -> None:
    limits = WireLimits(max_packet_bytes=4096)
    fits = w.submit(11, 1, b"x" * (4096 - 112))
    assert len(fits) == 4096

    assert CorePeer.open(limits).send(fits)[0].startswith("submitted")
    peer = CorePeer.open(limits)
    assert peer.send(w.submit(11, 1, b"x" * (4096 - 111))[:40]) == ["closed 1"]


def test_answers_to_a_peer_that_does_not_read_are_bounded() -> None:
    ping = w.frame(w.PING)
    reading = CorePeer.open(WireLimits(max_unread_answer_bytes=400))
    reading.connection.peer_is_reading()
    for _ in range(50):
        reading.send(ping * 10)  # 40 bytes each
        reading.connection.peer_is_reading()
    assert reading.connection.state is ConnectionState.OPEN

    silent = CorePeer.open(WireLimits(max_unread_answer_bytes=400))
    silent.connection.peer_is_reading()
    assert silent.send(ping * 10) == []
    assert silent.send(ping) == ["closed 1"]


def test_55_early_traces_are_bounded_and_the_oldest_gives_way() -> None:
    peer = CorePeer.open(WireLimits(max_early_traces=2))
    peer.send(w.trace(5), w.trace(6), w.trace(6, trace_id=2), w.trace(7))
    peer.send(*(w.submit(10 + frame_id, frame_id) for frame_id in (5, 6, 7)))

    traces = [peer.operations[number].trace for number in (15, 16, 17)]
    assert [trace and trace.trace_id for trace in traces] == [None, 2, 0xABC]


def test_52_abandoned_reservations_give_way_once_expired() -> None:
    peer = CorePeer.open(max_in_flight=2)
    early = [w.schedule(w.DEADLINE, 20 + number, number, START_UNIX_MS + 1000 * number) for number in range(1, 4)]
    peer.send(*early)
    assert peer.connection.refused_frames == 1

    peer.send(early[2], now=later(1.5))
    assert peer.connection.refused_frames == 1
    assert peer.send(w.submit(23, 3), now=later(4)) == ["submitted 23/3 b'{}'", "ended 23 deadline"]


def test_finished_operations_forget_the_older_half() -> None:
    finished = FinishedOperations(4)
    for number in range(1, 6):
        finished.add(100 + number, number)

    assert len(finished) == 3
    assert [finished.has_pair(100 + n, n) for n in range(1, 6)] == [False, False, True, True, True]
    assert not finished.has_frame(2)
    assert not finished.has_pair(105, 4)


def test_timers_are_due_in_order_and_stale_ones_do_not_pile_up() -> None:
    timers: Timers[str] = Timers()
    timers.set("late", 9.0)
    timers.set("early", 2.0)
    timers.set("moved", 1.0)
    timers.set("moved", 3.0)
    timers.set("cancelled", 2.5)
    timers.cancel("cancelled")
    for number in range(1000):
        timers.set("busy", 1000.0 + number)

    assert timers.next_due_s() == 2.0
    assert timers.pop_due(4.0) == ["early", "moved"]
    assert len(timers) == 2
    assert len(timers._heap) < 100


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_packet_bytes": 64 * 1024 * 1024 + 1},
        {"max_packet_bytes": 100},
        {"max_in_flight": 0},
        {"max_in_flight": 65_536},
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        WireLimits(**wrong)  # type: ignore[arg-type]


def test_mutated_frames_raise_nothing() -> None:
    random = Random(4)
    stream = b"".join(CONVERSATION)
    for _ in range(300):
        damaged = bytearray(stream)
        for _ in range(random.randint(1, 6)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        CorePeer().send(bytes(damaged))


def test_one_partial_costs_microseconds() -> None:
    operation = CorePeer.busy().operations[11]
    event = b"x" * 200
    best_s = 1.0
    gc.disable()
    try:
        for _ in range(5):
            started = time.perf_counter()
            for _ in range(2000):
                operation.send_partial(event)
            best_s = min(best_s, time.perf_counter() - started)
            operation.session.outbox.take()
    finally:
        gc.enable()

    assert best_s / 2000 < 20e-6  # 1 µs on a quiet machine; a copy of all that went before would show
