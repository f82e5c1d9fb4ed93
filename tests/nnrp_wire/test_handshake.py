# SPDX-License-Identifier: MIT
"""CLIENT_HELLO and SESSION_OPEN on the core by bytes; numbers are the rule book's."""

from __future__ import annotations

from struct import pack

import pytest

from nnrp_wire.limits import WireLimits
from nnrp_wire.state import ConnectionState
from tests.nnrp_wire.core_peer import CorePeer
from tests.support import wire_frames as w

LIMITS = WireLimits(max_in_flight=8, max_sessions_per_connection=3, max_session_ids_per_connection=5)


def opened() -> CorePeer:
    peer = CorePeer(LIMITS)
    peer.send(w.hello())
    peer.replies()
    return peer


def test_14_hello_ack_is_a_subset_of_the_hello() -> None:
    peer = CorePeer(LIMITS)
    peer.send(w.hello())

    expected = pack(
        "<BBBBIIIIIIIIIIIHHHHHHIIIII",
        1, 0, 0, 0,  # version, wire format, auth status, reserved
        0, 2, 0x7F, 1, 2, 3, 4, 5,  # session, profile TOKEN, kinds, codec, compression, dtype, layout, digest
        0, 0, 0,  # no cache objects, entries, bytes
        2, 8, 6000, 50, 1, 2,  # lanes, frames in flight, cadence, latency, tier, degrade
        16 * 1024 * 1024, 0, 0, 0, 0,
    )  # fmt: skip
    assert peer.replies() == [w.Reply(w.SERVER_HELLO_ACK, 0, 0, expected, b"")]
    assert peer.connection.state is ConnectionState.OPEN


def test_11_own_a_hello_may_carry_its_declared_auth() -> None:
    peer = CorePeer(LIMITS)
    peer.send(w.hello(auth=b"secret"))

    assert [reply.kind for reply in peer.replies()] == [w.SERVER_HELLO_ACK]


def test_26_27_an_accepted_open() -> None:
    peer = opened()

    assert peer.send(w.session_open(max_in_flight=4)) == ["opened 1"]
    metadata = pack("<IHBBIIHHIIIIQIII", 1, 2, 1, 0, 0x1001, 3, 4, 4, 30_000, 0, 0, 0, 77, 0, 0, 0)
    assert peer.replies() == [w.Reply(w.SESSION_OPEN_ACK, 1, 0, metadata, b"")]


OPENED = 0
PROFILE, SCHEMA, RESUME, LIMIT = 0x10002, 0x10003, 0x10006, 0x10007


@pytest.mark.parametrize(
    ("code", "frame"),
    [
        pytest.param(PROFILE, w.session_open(profile=1, schema=(7, 7)), id="25 profile, checked first"),
        pytest.param(SCHEMA, w.session_open(schema=(0x1001, 2), max_in_flight=9), id="25 schema, checked second"),
        pytest.param(LIMIT, w.session_open(max_in_flight=9), id="25 in flight above ours"),
        pytest.param(RESUME, w.session_open(requested=5, flags=1, token=b"token"), id="25 resume is not offered"),
        pytest.param(OPENED, w.session_open(flags=1), id="32 allow_resume alone is harmless"),
        pytest.param(OPENED, w.session_open(max_in_flight=8), id="25 in flight as many as ours"),
        pytest.param(OPENED, w.session_open(max_in_flight=0), id="38 in flight 0: our limit"),
        pytest.param(OPENED, w.session_open(schema=(0, 0)), id="25 no schema"),
        pytest.param(OPENED, w.session_open(auth=b"secret"), id="23 own: auth in the open"),
    ],
)
def test_open_is_decided(code: int, frame: bytes) -> None:
    peer = opened()

    assert peer.send(frame) == (["opened 1"] if code == OPENED else [])
    (reply,) = peer.replies()
    fields = w.OPEN_ACK.unpack(reply.metadata)
    session_id, status, extension_bytes, error = fields[0], fields[3], fields[11], fields[14]
    if code == OPENED:
        assert (session_id, status, extension_bytes, error, reply.body) == (1, 0, 0, 0, b"")
    else:  # 28: session 0, status 1, the diagnostic as body
        assert (session_id, reply.session_id, status, error) == (0, 0, 1, code)
        assert extension_bytes == len(reply.body) > 0
    assert peer.connection.state is ConnectionState.OPEN


def test_29_own_ids_count_up_and_are_never_reused() -> None:
    peer = opened()

    assert peer.send(w.session_open()) == ["opened 1"]
    assert peer.send(w.session_close()) == ["closed 1"]
    assert peer.send(w.session_open(requested=3)) == ["opened 3"]
    assert peer.send(w.session_open(), w.session_open()) == ["opened 2", "opened 4"]


def test_25_an_id_taken_or_used_is_rejected() -> None:
    peer = opened()
    peer.send(w.session_open(requested=2), w.session_open(requested=3), w.session_close(session=3))
    peer.replies()

    assert peer.send(w.session_open(requested=2), w.session_open(requested=3)) == []
    assert [w.OPEN_ACK.unpack(reply.metadata)[14] for reply in peer.replies()] == [LIMIT, LIMIT]


def test_sessions_and_session_ids_are_bounded() -> None:
    peer = opened()
    peer.send(*(w.session_open() for _ in range(3)))

    assert peer.send(w.session_open()) == []
    peer.send(*(w.session_close(session=number) for number in (1, 2, 3)))
    assert peer.send(w.session_open(), w.session_open(), w.session_open()) == ["opened 4", "opened 5"]


def test_a_draining_connection_rejects_sessions_and_turns_operations_away() -> None:
    peer = CorePeer.open()
    peer.connection.begin_drain()

    assert peer.send(w.session_open(), w.submit(20, 5)) == []
    open_ack, drop, retry = peer.replies()
    assert w.OPEN_ACK.unpack(open_ack.metadata)[14] == LIMIT
    assert drop == w.Reply(w.RESULT_DROP_REASON, 1, 5, pack("<QQHBBIQ", 20, 1, 4, 2, 3, 0, 0), b"")
    assert retry == w.Reply(w.RETRY_AFTER, 1, 0, pack("<QQIIHBBI", 1, 1, 1000, 0, 7, 2, 0, 0), b"")  # shutdown
