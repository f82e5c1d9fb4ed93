# SPDX-License-Identifier: MIT
"""The wire's rules, one row each, on the core by bytes. A row's number is the rule's in the rule book."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import pack

import pytest

from nnrp_wire.limits import WireLimits
from nnrp_wire.rules import RULES
from nnrp_wire.state import ConnectionState
from tests.nnrp_wire.core_peer import START_UNIX_MS, CorePeer
from tests.support import wire_frames as w

SOON, PAST = START_UNIX_MS + 5000, START_UNIX_MS - 5000


@dataclass(frozen=True)
class Row:
    """`sent` on a connection with operation 11/1 live and 12/2 finished; `at_start`: on one without a hello."""

    name: str
    sent: tuple[bytes, ...]
    events: list[str] = field(default_factory=list)
    replies: list[w.Reply] = field(default_factory=list)
    refused: int = 0
    closed: bool = False
    at_start: bool = False


def accepted(name: str, *sent: bytes, events: list[str] | None = None, replies: list[w.Reply] | None = None) -> Row:
    return Row(name, sent, events or [], replies or [])


def refused(name: str, *sent: bytes, events: list[str] | None = None, count: int = 1) -> Row:
    return Row(name, sent, events or [], refused=count)


def closes(name: str, *sent: bytes) -> Row:
    return Row(name, sent, ["ended 11 disconnected", "closed 1"], closed=True)


def closes_at_start(name: str, *sent: bytes) -> Row:
    return Row(name, sent, closed=True, at_start=True)


def header(**changes: int | bytes) -> bytes:
    fields: dict[str, int | bytes] = {
        "magic": b"NNRP", "major": 1, "format": 0, "kind": w.PING, "length": 40, "flags": 0, "meta": 0, "body": 0,
        "session": 1, "frame": 0, "view": 0, "route": 0, "trace": 0,
    }  # fmt: skip
    return w.HEADER.pack(*(fields | changes).values())


PONG = w.Reply(w.PONG, 1, 0, b"", b"")
DROP_OVER_LIMIT = pack("<QQHBBIQ", 20, 1, 4, 2, 3, 0, 0)  # code 4 backpressure, from the server, final and retryable
RETRY = pack("<QQIIHBBI", 1, 1, 1000, 0, 4, 2, 0, 0)
MISS = pack("<IHHQQII", 5, 2, 1, 6, 7, 0, 0)  # the asked identity, reason 1 not_found
CACHE_REFERENCE = pack("<IHHQQQQIIII", 5, 2, 1, 6, 7, 0, 0, 0, 0, 0, 0)
CACHE_PUT = pack("<IIQQIIII", 5, 1, 6, 7, 100, 3, 0, 0)
PATCH = pack("<HHIIHHQIII", 2, 0, 1, 6000, 0, 0, 0, 0, 0, 0)
PATCH_REJECTED = pack("<HHIIIHHIHHQIII", 2, 1, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0)
BUDGET = pack("<QQQQII", 11, 1, 2, 3, 4, 0)
SESSION_BUDGET = pack("<QQQQII", 0, 1, 2, 3, 4, 0)
ROUTE = pack("<QIHHQII", 11, 1, 0, 0, 0, 4, 0)
OBJECT = pack("<QHBBIQIHHIIQ", 1, 1, 1, 2, 1, 9, 0, 0, 0, 0, 0, 0)
OBJECT_REF = pack("<QQQQQII", 1, 11, 0, 0, 0, 0, 0)
OBJECT_RELEASE = pack("<QQHBBIQ", 1, 0, 0, 1, 0, 0, 0)
OBJECT_DELTA = pack("<QQQIIII", 1, 1, 0, 2, 2, 0, 1)
INVALIDATE = pack("<IIQQII", 0, 0, 0, 0, 0, 0)
PARTIAL = pack("<QQQQII", 11, 1, 0, 0, 2, 0)
PROGRESS = pack("<QQHHQI", 11, 1, 5, 0xFFFF, 0, 0)
DROP = pack("<QQHBBIQ", 11, 1, 3, 1, 1, 0, 0)
RECOVERABLE = pack("<IIHBBIIIII", 1, 1, 0, 1, 0, 0, 1, 0, 0, 0)
RETRY_FROM_CLIENT = pack("<QQIIHBBI", 1, 1, 5, 0, 1, 1, 0, 0)
MIGRATE = pack("<IIQQ", 2, 2, 0, 0)

ROWS = [
    # A. Packets
    accepted("1 a packet is header, metadata, body", header(), replies=[PONG]),
    closes("2 wrong magic", header(magic=b"NNRQ")),
    closes("2 wrong version", header(major=2)),
    closes("2 wrong wire format", header(format=1)),
    closes("2 wrong header length", header(length=48)),
    closes("2 a stranger is known by its first byte", b"GET"),
    refused("2 own: an unknown type costs one frame", header(kind=0x7F)),
    refused("2 own: an unknown flag bit costs one frame", header(flags=0x40)),
    accepted("3 known header flags change nothing", header(flags=0x3F), replies=[PONG]),
    closes("4 a packet over the limit, by its header alone", header(kind=w.FRAME_SUBMIT, body=16 * 1024 * 1024)),
    refused("5 metadata is exact: one byte short", w.frame(w.CANCEL, w.CONTROL.pack(11, 1, 1, 1, 0, 0, 0)[:-1])),
    refused("5 the body has its declared length", w.control(w.CANCEL, 11, 1, diagnostic=b"why", declared=2)),
    refused("5 a record without a body field needs an empty body", w.frame(w.BUDGET_UPDATE, BUDGET, b"x", frame_id=1)),
    refused("6 reserved fields are 0", w.control(w.CANCEL, 11, 1, reserved=1)),
    refused("6 reserved flag bits are 0", w.control(w.CANCEL, 11, 1, flags=4)),
    refused("6 enums are in range", w.frame(w.CACHE_INVALIDATE, pack("<IIQQII", 9, 0, 0, 0, 0, 0))),
    # B. Connection
    closes_at_start("10 the first frame is a hello", w.session_open()),
    closes_at_start("10 an unknown first frame", header(kind=0x7F)),
    Row("10 probes may come before the hello", (w.probe(), w.probe()), at_start=True, replies=[
        w.Reply(w.TRANSPORT_PROBE_ACK, 0, 0, pack("<IIQ", 7, 0, START_UNIX_MS * 1000), b"")] * 2),
    closes_at_start("11 the hello has 64 bytes", w.frame(w.CLIENT_HELLO, b"\0" * 63, session=0)),
    closes_at_start("11 the hello is of session 0", w.frame(w.CLIENT_HELLO, w.hello()[40:], session=1)),
    closes_at_start("11 own: the hello's body has the declared length", w.hello(auth=b"secret", declared_auth=3)),
    closes_at_start("13 no common version", w.hello(versions=(2, 3))),
    closes_at_start("13 no common wire format", w.hello(formats=2)),
    closes_at_start("13 no common profile", w.hello(profiles=1)),
    closes_at_start("13 no payload kind", w.hello(kinds=0)),
    closes("15 a second hello", w.hello()),
    accepted("16 a probe is answered at any time", w.probe(), replies=[
        w.Reply(w.TRANSPORT_PROBE_ACK, 0, 0, pack("<IIQ", 7, 0, START_UNIX_MS * 1000), b"")]),
    closes("16 a probe of the wrong length", w.probe(declared=9)),
    accepted("17 own: connection-scope FLOW_UPDATE", w.flow_update(0, session=0)),
    accepted("17 own: PING of the connection", w.frame(w.PING, session=0, frame_id=3), replies=[
        w.Reply(w.PONG, 0, 3, b"", b"")]),
    refused("17 own: a session's frame without session", w.control(w.CANCEL, 11, 1, session=0)),
    refused("18 own: an unknown session costs one frame", w.control(w.CANCEL, 11, 1, session=9)),
    refused("19 CLOSE is no frame for us", w.frame(0x05, session=0)),
    # C. Session open: the answers are in test_handshake.py
    closes("22 SESSION_OPEN is of session 0", w.session_open(session=1)),
    closes("22 its reserved field is 0", w.session_open(reserved=1)),
    closes("22 its flags are 0x0f", w.session_open(flags=0x10)),
    closes("24 a resume token needs its flag", w.session_open(requested=5, token=b"t")),
    closes("24 a resume token needs the session's id", w.session_open(flags=1, token=b"t")),
    # D. Operations
    accepted("34 a submit", w.submit(20, 5, b"hi"), events=["submitted 20/5 b'hi'"]),
    accepted("34 the body is not looked at", w.submit(20, 5, b""), events=["submitted 20/5 b''"]),
    refused("34 operation id 0", w.submit(0, 5)),
    refused("34 unknown payload kind", w.submit(20, 5, kinds=0x80)),
    refused("34 unknown budget bit", w.submit(20, 5, budget=0x10)),
    refused("34 a reserved field", w.submit(20, 5, reserved=1)),
    refused("34 a tensor field without tensor", w.submit(20, 5, tile_count=1)),
    refused("34 unknown object_ref bit", w.submit(20, 5, object_ref_mask=0x10)),
    refused("35 an operation id in use", w.submit(11, 5)),
    refused("35 a finished operation id", w.submit(12, 5)),
    refused("35 a frame id in use", w.submit(20, 1)),
    refused("35 a finished frame id", w.submit(20, 2)),
    refused("35 frame id 0", w.submit(20, 0)),
    refused("36 the pair must match", w.control(w.CANCEL, 11, 2)),
    refused("36 an unknown operation", w.control(w.CANCEL, 99, 9)),
    accepted("37 0/0 is the whole session", w.control(w.CANCEL, 0, 0), events=["ended 11 cancelled"]),
    refused("37 0 with a frame id", w.control(w.CANCEL, 0, 1)),
    accepted("37 a session's budget", w.frame(w.BUDGET_UPDATE, SESSION_BUDGET), events=["control BUDGET_UPDATE -"]),
    refused("37 0 with a frame id, for hints too", w.frame(w.BUDGET_UPDATE, SESSION_BUDGET, frame_id=1)),
    Row("38 own: over the in-flight limit: drop 4 and RETRY_AFTER", (
        w.submit(13, 3), w.submit(14, 4), w.submit(15, 5), w.submit(20, 20)),
        events=["submitted 13/3 b'{}'", "submitted 14/4 b'{}'", "submitted 15/5 b'{}'"],
        replies=[w.Reply(w.RESULT_DROP_REASON, 1, 20, DROP_OVER_LIMIT, b""), w.Reply(w.RETRY_AFTER, 1, 0, RETRY, b"")]),
    # E. Control
    accepted("47 CANCEL", w.control(w.CANCEL, 11, 1, diagnostic=b"why"), events=["ended 11 cancelled"]),
    accepted("47 ABORT", w.control(w.ABORT, 11, 1), events=["ended 11 aborted"]),
    refused("47 role 0", w.control(w.CANCEL, 11, 1, role=0)),
    refused("47 role 8", w.control(w.CANCEL, 11, 1, role=8)),
    accepted("47 role 0x80", w.control(w.CANCEL, 11, 1, role=0x80), events=["ended 11 cancelled"]),
    accepted("47 own: late control is ignored", w.control(w.CANCEL, 12, 2), w.control(w.ABORT, 12, 2)),
    accepted("47 own: a second end is late", w.control(w.CANCEL, 11, 1), w.control(w.ABORT, 11, 1),
             events=["ended 11 cancelled"]),
    accepted("48 FRAME_CANCEL", w.frame_cancel(1), events=["ended 11 cancelled"]),
    accepted("48 own: a finished frame is late", w.frame_cancel(2)),
    refused("48 a frame never submitted", w.frame_cancel(9)),
    refused("48 it has no metadata", w.frame(w.FRAME_CANCEL, b"x", frame_id=1)),
    accepted("49 SUPERSEDE", w.supersede(11, 99, 1), events=["ended 11 superseded"]),
    refused("49 its frame id is the old operation's", w.supersede(11, 12, 2)),
    refused("49 its flags", w.supersede(11, 99, 1, flags=2)),
    accepted("51 DEADLINE, EXPIRE_AT", w.schedule(w.DEADLINE, 11, 1, SOON), w.schedule(w.EXPIRE_AT, 11, 1, SOON)),
    accepted("51 PRIORITY_UPDATE", w.schedule(w.PRIORITY_UPDATE, 11, 1, 0), events=["control PRIORITY_UPDATE 11"]),
    refused("51 a time of 0", w.schedule(w.DEADLINE, 11, 1, 0), w.schedule(w.EXPIRE_AT, 11, 1, 0), count=2),
    refused("51 its flags", w.schedule(w.DEADLINE, 11, 1, SOON, flags=4)),
    accepted("51 own: late for a finished operation", w.schedule(w.DEADLINE, 12, 2, SOON)),
    accepted("52 DEADLINE before its submit", w.schedule(w.DEADLINE, 20, 5, SOON), w.submit(20, 5),
             events=["submitted 20/5 b'{}'"]),
    refused("52 not twice", w.schedule(w.DEADLINE, 20, 5, SOON), w.schedule(w.DEADLINE, 20, 5, SOON)),
    refused("52 not twice for one frame", w.schedule(w.DEADLINE, 20, 5, SOON), w.schedule(w.DEADLINE, 21, 5, SOON)),
    refused("52 not already past", w.schedule(w.DEADLINE, 20, 5, PAST)),
    refused("52 at most the open's in-flight limit",
            *(w.schedule(w.DEADLINE, 20 + number, 20 + number, SOON) for number in range(5))),
    refused("52 another frame id: refused, and the reservation is gone", w.schedule(w.DEADLINE, 20, 5, SOON),
            w.submit(20, 6), w.submit(20, 6), events=["submitted 20/6 b'{}'"]),
    refused("52 another operation's frame id: likewise", w.schedule(w.DEADLINE, 20, 5, SOON),
            w.submit(21, 5), w.submit(21, 5), events=["submitted 21/5 b'{}'"]),
    refused("52 not with an id in use", w.schedule(w.DEADLINE, 20, 1, SOON)),
    refused("52 not EXPIRE_AT", w.schedule(w.EXPIRE_AT, 20, 5, SOON)),
    refused("52 not PRIORITY_UPDATE", w.schedule(w.PRIORITY_UPDATE, 20, 5, SOON)),
    accepted("54 own: a time already past ends a live operation", w.schedule(w.DEADLINE, 11, 1, PAST),
             events=["ended 11 deadline"]),
    accepted("55 trace of the session", w.trace(0), events=["traced session abc"]),
    accepted("55 trace of an operation", w.trace(1), events=["traced 11 abc"]),
    accepted("55 own: trace before its submit", w.trace(5), w.submit(20, 5),
             events=["submitted 20/5 b'{}'", "traced 20 abc"]),
    accepted("55 trace of a finished operation is late", w.trace(2)),
    accepted("55 trace of session 0", w.trace(0, session=0)),
    accepted("55 header trace id equal", w.trace(0, header_trace=0xABC), events=["traced session abc"]),
    refused("55 header trace id different", w.trace(0, header_trace=1)),
    refused("55 trace id 0", w.trace(0, trace_id=0)),
    refused("55 span id 0", w.trace(0, span_id=0)),
    refused("55 a reserved stage", w.trace(0, stage=0x0C)),
    refused("55 its flags", w.trace(0, flags=4)),
    accepted("56 CREDIT_UPDATE", w.pressure(w.CREDIT_UPDATE, level=0), events=["control CREDIT_UPDATE -"]),
    accepted("56 BACKPRESSURE", w.pressure(w.BACKPRESSURE, level=3), events=["control BACKPRESSURE -"]),
    refused("56 level 0", w.pressure(w.BACKPRESSURE, level=0)),
    refused("56 level 4", w.pressure(w.BACKPRESSURE, level=4)),
    refused("56 reserved", w.pressure(w.CREDIT_UPDATE, level=0, reserved=1)),
    accepted("57 FLOW_UPDATE of the session", w.flow_update(1), events=["control FLOW_UPDATE -"]),
    accepted("57 of an operation", w.flow_update(2, operation=11, frame_id=1), events=["control FLOW_UPDATE 11"]),
    refused("57 of operation 0", w.flow_update(2)),
    refused("57 of the connection, but with a session", w.flow_update(0)),
    refused("57 of a session, but without", w.flow_update(1, session=0)),
    refused("57 reserved", w.flow_update(1, reserved=1)),
    accepted("58 hints",
             w.frame(w.BUDGET_UPDATE, BUDGET, frame_id=1), w.frame(w.ROUTE_HINT, ROUTE, b"path", frame_id=1),
             w.frame(w.EXECUTION_HINT, ROUTE, b"path", frame_id=1),
             events=["control BUDGET_UPDATE 11", "control ROUTE_HINT 11", "control EXECUTION_HINT 11"]),
    accepted("59 capabilities are the handler's to answer: test_core_control.py",
             w.capabilities(w.CAPABILITY_NEGOTIATION, "control.supersede", "object.delta"),
             w.capabilities(w.DEGRADE_PROFILE),
             events=["control CAPABILITY_NEGOTIATION -", "control DEGRADE_PROFILE -"]),
    refused("59 unsorted", w.capabilities(w.CAPABILITY_NEGOTIATION, "object.delta", "control.supersede")),
    refused("59 repeated", w.capabilities(w.CAPABILITY_NEGOTIATION, "object.delta", "object.delta")),
    refused("59 unknown", w.capabilities(w.CAPABILITY_NEGOTIATION, "control.fly")),
    refused("59 payload.typed is not in the closed list", w.capabilities(w.CAPABILITY_NEGOTIATION, "payload.typed")),
    refused("59 miscounted", w.capabilities(w.CAPABILITY_NEGOTIATION, "object.delta", count=2)),
    refused("59 JSON", w.capabilities(w.CAPABILITY_NEGOTIATION, body=b'{"a":1}', count=1)),
    refused("59 not ASCII", w.capabilities(w.CAPABILITY_NEGOTIATION, body=b"\x01\0\xff", count=1)),
    accepted("60 objects are observed",
             w.frame(w.OBJECT_DECLARE, OBJECT), w.frame(w.OBJECT_REF, OBJECT_REF, frame_id=1),
             w.frame(w.OBJECT_RELEASE, OBJECT_RELEASE), w.frame(w.OBJECT_PATCH, OBJECT_DELTA, b"mdd"),
             w.frame(w.OBJECT_DELTA, OBJECT_DELTA, b"mdd"),
             events=["control OBJECT_DECLARE -", "control OBJECT_REF 11", "control OBJECT_RELEASE -",
                     "control OBJECT_PATCH -", "control OBJECT_DELTA -"]),
    refused("60 metadata and delta make the body", w.frame(w.OBJECT_DELTA, OBJECT_DELTA, b"md")),
    accepted("61 CACHE_REFERENCE misses", w.frame(w.CACHE_REFERENCE, CACHE_REFERENCE),
             events=["control CACHE_REFERENCE -"], replies=[w.Reply(w.CACHE_MISS, 1, 0, MISS, b"")]),
    accepted("61 CACHE_MISS, CACHE_INVALIDATE are observed", w.frame(w.CACHE_MISS, MISS),
             w.frame(w.CACHE_INVALIDATE, INVALIDATE), events=["control CACHE_MISS -", "control CACHE_INVALIDATE -"]),
    accepted("62 own: CACHE_PUT is rejected", w.frame(w.CACHE_PUT, CACHE_PUT, b"abc"),
             events=["control CACHE_PUT -"],
             replies=[w.Reply(w.CACHE_ACK, 1, 0, pack("<IIQQIIII", 5, 1, 6, 7, 0, 0, 0, 0), b"")]),
    accepted("62 CACHE_ACK is observed", w.frame(w.CACHE_ACK, pack("<IIQQIIII", 5, 0, 6, 7, 0, 0, 0, 0)),
             events=["control CACHE_ACK -"]),
    accepted("63 server frames from a client are observed", w.frame(w.PROGRESS, PROGRESS, frame_id=1),
             w.frame(w.PARTIAL_RESULT, PARTIAL, b"hi", frame_id=1), w.frame(w.RESULT_DROP_REASON, DROP, frame_id=1),
             w.frame(w.ERROR_RECOVERABLE, RECOVERABLE), w.frame(w.RETRY_AFTER, RETRY_FROM_CLIENT),
             events=["control PROGRESS 11", "control PARTIAL_RESULT 11", "control RESULT_DROP_REASON 11",
                     "control ERROR_RECOVERABLE -", "control RETRY_AFTER -"]),
    refused("41 an empty partial without object",
            w.frame(w.PARTIAL_RESULT, pack("<QQQQII", 11, 1, 0, 0, 0, 0), frame_id=1)),
    refused("44 a drop without code",
            w.frame(w.RESULT_DROP_REASON, pack("<QQHBBIQ", 11, 1, 0, 1, 1, 0, 0), frame_id=1)),
    refused("64 PING has no body", w.frame(w.PING, b"", b"x")),
    accepted("65 own: PING is answered, PONG observed", w.frame(w.PING), w.frame(w.PONG),
             events=["control PONG -"], replies=[PONG]),
    accepted("66 SESSION_PATCH is rejected: unsupported field", w.frame(w.SESSION_PATCH, PATCH),
             events=["control SESSION_PATCH -"], replies=[w.Reply(w.SESSION_PATCH_ACK, 1, 0, PATCH_REJECTED, b"")]),
    refused("67 SESSION_MIGRATE", w.frame(w.SESSION_MIGRATE, MIGRATE, session=0), w.frame(w.SESSION_MIGRATE, MIGRATE),
            count=2),
    refused("68 the server's own frames", w.frame(w.SERVER_HELLO_ACK, session=0),
            w.frame(w.SESSION_OPEN_ACK, session=0), w.frame(w.RESULT_PUSH), w.frame(w.RESULT_HINT),
            w.frame(w.RESULT_DROP), count=5),
    # F. Session close: more in test_core_operations.py
    refused("69 an unknown policy", w.session_close(policy=2)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rule(row: Row) -> None:
    peer = CorePeer() if row.at_start else CorePeer.busy(WireLimits())

    assert peer.send(*row.sent) == row.events
    replies = peer.replies()
    assert [reply for reply in replies if reply.kind != w.ERROR_RECOVERABLE] == row.replies
    told = [reply for reply in replies if reply.kind == w.ERROR_RECOVERABLE]
    if row.refused == len(row.sent) and not row.closed:
        assert len(told) == sum(w.session_of(frame) == 1 for frame in row.sent), "one diagnostic a refused frame"
    assert peer.connection.refused_frames == row.refused
    assert (peer.connection.state is ConnectionState.CLOSED) is row.closed


@pytest.mark.parametrize("row", [row for row in ROWS if row.refused], ids=lambda row: row.name)
def test_a_refused_frame_has_no_other_effect(row: Row) -> None:
    peer = CorePeer.busy()
    peer.send(*row.sent)
    peer.replies()

    assert peer.send(w.control(w.CANCEL, 11, 1)) == ["ended 11 cancelled"]


def test_every_row_of_the_table_has_been_sent() -> None:
    sent = {frame[6] for row in ROWS for frame in row.sent if len(frame) >= 40}

    assert set(RULES) - sent == set()
