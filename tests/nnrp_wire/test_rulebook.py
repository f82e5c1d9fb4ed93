# SPDX-License-Identifier: MIT
"""docs/nnrp-wire-rules.md: the rules that need more than one frame, and that no rule is without a test or a reason."""

from __future__ import annotations

import re
from pathlib import Path
from struct import pack

import pytest

from nnrp_wire.state import MAY_SEND, ConnectionState, OperationState
from tests.nnrp_wire.core_peer import START_UNIX_MS, CorePeer, later
from tests.support import wire_frames as w

HERE = Path(__file__).parent
BOOK = HERE.parents[1] / "docs/nnrp-wire-rules.md"

# Rules that no byte of ours shows, or that are kept elsewhere.
ELSEWHERE = {
    9: "nothing to do: the protocol has no checksum, compression or encryption of its own",
    79: "nothing to do: lifecycle events are local to the SDK",
    80: "the profile sends the trace and the drop: tests/nnrp_openai",
    82: "the profile chooses the drop code: tests/nnrp_openai",
    83: "the profile answers capabilities: tests/nnrp_openai; CACHE_MISS is rule 61",
}


def hello(*, extension: bytes) -> bytes:
    frame = bytearray(w.hello() + extension)
    frame[16:20] = len(extension).to_bytes(4, "little")  # the header's body length
    frame[100:104] = len(extension).to_bytes(4, "little")  # control_extension_bytes, the last field
    return bytes(frame)


def test_8_the_ids_of_a_header_that_are_not_ours_are_not_interpreted() -> None:
    ping = bytearray(w.frame(w.PING))
    ping[28:40] = b"\xff" * 12  # view, route and trace id
    peer = CorePeer.busy()
    peer.send(bytes(ping))

    assert [reply.kind for reply in peer.replies()] == [w.PONG]


def test_12_own_extensions_of_the_hello_are_taken_and_not_read() -> None:
    peer = CorePeer()
    peer.send(hello(extension=b"\xff" * 24))

    assert [reply.kind for reply in peer.replies()] == [w.SERVER_HELLO_ACK]


def test_28_a_rejected_open_leaves_the_connection_usable() -> None:
    peer = CorePeer.busy()
    peer.send(w.session_open(profile=9))
    (rejected,) = peer.replies()

    assert rejected.session_id == 0
    assert w.OPEN_ACK.unpack(rejected.metadata)[3] == 1
    assert peer.send(w.session_open()) == ["opened 2"]
    assert peer.send(w.control(w.CANCEL, 11, 1)) == ["ended 11 cancelled"]


def test_30_no_frame_of_session_0_but_answers_to_one() -> None:
    """A client would take it for the answer to its next open."""
    peer = CorePeer.busy()
    peer.send(w.session_open(), w.submit(20, 5, session=2), w.flow_update(0, session=0), w.control(w.CANCEL, 11, 1))
    peer.connection.begin_drain()
    peer.send(w.submit(21, 6), w.session_close(session=2))
    peer.tick(later(10_000))
    peer.connection.turn_away()

    replies = peer.replies()
    assert [reply.kind for reply in replies if reply.session_id == 0] == []
    assert {reply.kind for reply in replies} == {
        w.SESSION_OPEN_ACK, w.RESULT_DROP_REASON, w.RETRY_AFTER, w.SESSION_CLOSE_ACK}  # fmt: skip


def test_31_frames_of_a_session_may_follow_its_open_at_once() -> None:
    peer = CorePeer()
    events = peer.send(w.hello() + w.session_open() + w.submit(11, 1, b"now") + w.control(w.CANCEL, 11, 1))
    assert events == ["opened 1", "submitted 11/1 b'now'", "ended 11 cancelled"]


def test_33_deadline_lease_and_credit_of_the_open_end_nothing() -> None:
    """Every SDK client opens with a default deadline of 500 ms."""
    peer = CorePeer.busy()
    assert peer.tick(later(100_000)) == []
    assert peer.operations[11].ended is None


def test_39_nothing_leaves_a_terminal_state() -> None:
    assert MAY_SEND[OperationState.DONE] == MAY_SEND[OperationState.GONE] == frozenset()
    peer = CorePeer.busy()
    assert peer.send(w.control(w.CANCEL, 12, 2), w.control(w.ABORT, 12, 2), w.frame_cancel(2)) == []
    assert peer.operations[12].ended is None


@pytest.mark.parametrize(
    "frame",
    [w.control(w.CANCEL, 11, 1), w.control(w.ABORT, 11, 1), w.frame_cancel(1), w.supersede(11, 99, 1)],
    ids=["50 CANCEL", "50 ABORT", "50 FRAME_CANCEL", "50 SUPERSEDE"],
)
def test_50_the_drop_is_the_only_answer_to_an_end(frame: bytes) -> None:
    peer = CorePeer.busy()
    peer.send(frame)
    assert peer.replies() == []

    peer.operations[11].send_drop(3, b"", retryable=False)
    assert [reply.kind for reply in peer.replies()] == [w.RESULT_DROP_REASON]


def test_46_76_frames_of_an_operation_keep_their_order_and_their_ids() -> None:
    peer = CorePeer.busy()
    peer.send(w.submit(20, 5))
    for number in range(3):
        peer.operations[11].send_partial(b"a%d" % number)
        peer.operations[20].send_partial(b"b%d" % number)

    replies = peer.replies()
    assert [reply.body for reply in replies if reply.frame_id == 1] == [b"a0", b"a1", b"a2"]
    assert [reply.body for reply in replies if reply.frame_id == 5] == [b"b0", b"b1", b"b2"]
    assert {(reply.frame_id, reply.metadata[:8]) for reply in replies} == {(1, pack("<Q", 11)), (5, pack("<Q", 20))}


def test_77_own_a_sequence_is_no_acknowledgement() -> None:
    """Gaps are nobody's business; that an older one changes nothing is in test_core_control.py."""
    peer = CorePeer.busy()
    far = pack("<QQHBBIQ", 11, 1 << 60, 1, 1, 0, 0, 0)
    assert peer.send(w.frame(w.CANCEL, far, frame_id=1)) == ["ended 11 cancelled"]
    assert peer.connection.refused_frames == 0


def test_78_what_a_payload_says_is_not_looked_at() -> None:
    peer = CorePeer.busy()
    assert peer.send(w.submit(20, 5, b"\xff\x00")) == [r"submitted 20/5 b'\xff\x00'"]


def test_81_84_a_deadline_before_its_submit_and_nothing_else_on_the_wire() -> None:
    peer = CorePeer.open()
    peer.send(w.schedule(w.DEADLINE, 20, 5, START_UNIX_MS + 3_600_000), w.submit(20, 5))
    peer.operations[20].send_partial(b"answer")
    peer.operations[20].send_drop(8, b"", retryable=False)

    assert [reply.kind for reply in peer.replies()] == [w.PARTIAL_RESULT, w.RESULT_DROP_REASON]
    assert peer.tick(later(7200)) == []
    assert peer.replies() == []
    assert peer.connection.state is ConnectionState.OPEN


# Completeness

_IN_NAME = re.compile(r"def test_(\d+(?:_\d+)*)(?:_to_(\d+))?_")
_IN_ROW = re.compile(r'(?:id=|\(|\[|, )"(\d+) ')


def rules_in(source: str) -> set[int]:
    """The numbers that the tests of a file carry in their names."""
    found = {int(number) for number in _IN_ROW.findall(source)}
    for numbers, last in _IN_NAME.findall(source):
        named = [int(number) for number in numbers.split("_")]
        found |= set(named) | set(range(named[-1], int(last or 0) + 1))
    return found


def test_every_rule_has_a_test_or_a_reason() -> None:
    rules = {int(number) for number in re.findall(r"^(\d+)\. ", BOOK.read_text(encoding="utf-8"), re.MULTILINE)}
    assert rules == set(range(1, 85))
    tested = set().union(*(rules_in(path.read_text(encoding="utf-8")) for path in HERE.glob("test_*.py")))

    assert rules - tested - set(ELSEWHERE) == set()
    assert set(ELSEWHERE) & tested == set(), "a reason that is not needed"
    assert tested <= rules
