# SPDX-License-Identifier: MIT
"""Byte streams that peers should not send: valid conversations that were damaged, frames made of chance, pure noise."""

from __future__ import annotations

from functools import reduce

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from nnrp_wire.rules import RULES
from tests.nnrp_wire.core_peer import START_UNIX_MS
from tests.support import wire_frames as w

# Metadata sizes by frame type, so that a frame of chance often gets past the first check; 0 where there is none.
SIZES = {int(kind): 0 if rule.codec is None else rule.codec.STRUCT.size for kind, rule in RULES.items()}
U32, U64 = 2**32 - 1, 2**64 - 1

CORPUS = (
    w.probe(),
    w.hello(),
    w.session_open(max_in_flight=64),
    w.session_open(requested=7),
    w.submit(11, 1, b"first"),
    w.submit(12, 2, b"second" * 50, session=2),
    w.submit(13, 3, trace_id=5),
    w.trace(0),
    w.trace(1, trace_id=2, body=b"attributes"),
    w.control(w.CANCEL, 11, 1, diagnostic=b"why"),
    w.control(w.ABORT, 0, 0),
    w.frame_cancel(1),
    w.supersede(11, 13, 1),
    w.schedule(w.DEADLINE, 14, 4, START_UNIX_MS + 1000),
    w.schedule(w.EXPIRE_AT, 11, 1, START_UNIX_MS + 1),
    w.schedule(w.PRIORITY_UPDATE, 11, 1, 0),
    w.flow_update(1),
    w.flow_update(2, operation=11, frame_id=1),
    w.pressure(w.CREDIT_UPDATE, level=0),
    w.pressure(w.BACKPRESSURE, level=3),
    w.capabilities(w.CAPABILITY_NEGOTIATION, "control.supersede"),
    w.frame(w.PING),
    w.frame(0x7E),
    w.session_close(policy=1),
    w.session_close(session=2, drain_ms=50),
)

small_ids = st.sampled_from((0, 1, 2, 3, 4, 11, 12, 13, 99, U32))


@st.composite
def chance_frames(draw: st.DrawFn) -> bytes:
    """A sound header around contents of chance."""
    kind = draw(st.sampled_from(sorted(SIZES)) | st.integers(0, 255))
    size = SIZES.get(kind, 0)
    metadata = draw(st.binary(min_size=size, max_size=size) | st.binary(max_size=90))
    return w.HEADER.pack(
        b"NNRP", 1, 0, kind, 40, draw(st.sampled_from((0, 0, 0, 1, 0x3F, 0x40, U32))), len(metadata),
        len(body := draw(st.binary(max_size=60))), draw(small_ids), draw(small_ids), draw(st.integers(0, 9)), 0,
        draw(st.sampled_from((0, 0, 1, U64))),
    ) + metadata + body  # fmt: skip


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, float, bytes]:
    """What to do at which part of the stream (0..1), with which bytes."""
    return (
        draw(st.sampled_from(("flip", "cut", "insert", "repeat", "end"))),
        draw(st.floats(0, 1)),
        draw(st.binary(min_size=1, max_size=40)),
    )


def damaged(data: bytes, damage: tuple[str, float, bytes]) -> bytes:
    how, part, extra = damage
    at = int(part * len(data))
    size = len(extra)
    match how:
        case "flip":
            return data[:at] + extra + data[at + size :]
        case "cut":
            return data[:at] + data[at + size :]
        case "insert":
            return data[:at] + extra + data[at:]
        case "repeat":
            return data[: at + size * 8] + data[at:]
        case _:
            return data[:at]


def _conversation(frames: list[bytes]) -> bytes:
    return w.hello() + w.session_open(max_in_flight=64) + b"".join(frames)


frames: SearchStrategy[bytes] = st.sampled_from(CORPUS) | chance_frames()
conversations: SearchStrategy[bytes] = st.lists(frames, max_size=20).map(_conversation)
damaged_conversations: SearchStrategy[bytes] = st.builds(
    lambda data, hurts: reduce(damaged, hurts, data), conversations, st.lists(damages(), min_size=1, max_size=5)
)
streams: SearchStrategy[bytes] = conversations | damaged_conversations | st.binary(max_size=300)
steps: SearchStrategy[int] = st.sampled_from((1, 7, 40, 1000, 65536))
