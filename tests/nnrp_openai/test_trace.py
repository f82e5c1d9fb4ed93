# SPDX-License-Identifier: MIT
"""The frozen trace rules, one row each, with the order of frames forced: what the engine gets, what is observed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import pytest

from chatdelta import TraceContext
from chatdelta.testing import Wait, text_script
from nnrp_wire import WireLimits, open_listener
from tests.nnrp_openai.fake_carrier import envelope, submit_packet
from tests.nnrp_openai.serving import serving
from tests.support import wire_frames as w
from tests.support.raw_peer import RawPeer
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio

FRAME = 5
SESSION = 0


@dataclass(frozen=True)
class Row:
    """Frames before the submit, right after it, and once the request is at the engine; `header` is the submit's id."""

    traceparent: str | None
    observed: TraceContext | None
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()
    late: tuple[bytes, ...] = ()
    header: int = 0


def trace(frame_id: int, trace_id: int, span_id: int, *, flags: int = 0, stage: int = 0, body: bytes = b"") -> bytes:
    return w.trace(frame_id, trace_id=trace_id, span_id=span_id, flags=flags, stage=stage, body=body)


def parent(trace_id: int, span_id: int, flags: str = "00") -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{flags}"


ROWS: dict[str, Row] = {
    "no trace": Row(None, None),
    "the submit's own id alone is observed": Row(None, TraceContext(77, 0), header=77),
    "a session's trace": Row(parent(0xABC, 0xDEF), TraceContext(0xABC, 0xDEF), before=(trace(SESSION, 0xABC, 0xDEF),)),
    "ids of 64 bits fill the low half": Row(
        "00-0000000000000000ffffffffffffffff-8000000000000001-00",
        TraceContext(2**64 - 1, 2**63 + 1),
        before=(trace(SESSION, 2**64 - 1, 2**63 + 1),),
    ),
    "sampled": Row(parent(1, 2, "01"), TraceContext(1, 2, flags=1), before=(trace(SESSION, 1, 2, flags=1),)),
    "error is not a W3C flag": Row(
        parent(1, 2, "01"), TraceContext(1, 2, flags=3), before=(trace(SESSION, 1, 2, flags=3),)
    ),
    "stage and attributes stay here": Row(
        parent(1, 2),
        TraceContext(1, 2, stage=5, attribute_bytes=6),
        before=(trace(SESSION, 1, 2, stage=5, body=b"secret"),),
    ),
    "an operation's own, before its submit": Row(
        parent(3, 4),
        TraceContext(3, 4),
        before=(trace(SESSION, 1, 2), trace(FRAME, 3, 4)),
    ),
    "an operation's own, right after its submit": Row(
        parent(3, 4),
        TraceContext(3, 4),
        before=(trace(SESSION, 1, 2),),
        after=(trace(FRAME, 3, 4),),
    ),
    "another operation's own": Row(parent(1, 2), TraceContext(1, 2), before=(trace(SESSION, 1, 2), trace(9, 3, 4))),
    "the last of a session counts": Row(
        parent(3, 4), TraceContext(3, 4), before=(trace(SESSION, 1, 2), trace(SESSION, 3, 4))
    ),
    "an operation's own after dispatch is observed only": Row(
        parent(1, 2), TraceContext(3, 4), before=(trace(SESSION, 1, 2),), late=(trace(FRAME, 3, 4),)
    ),
    "the first trace after dispatch is observed only": Row(None, TraceContext(3, 4), late=(trace(FRAME, 3, 4),)),
    "without an id nothing is taken": Row(None, None, before=(trace(SESSION, 0, 2), trace(SESSION, 1, 0))),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
async def test_trace(row: Row, stream: bool) -> None:
    gate = asyncio.Event()
    async with serving([Wait(gate), *text_script("a")]) as served:
        listener = await open_listener(served.handler, limits=WireLimits(trace_hold_s=0.1))
        peer = await (await RawPeer.tcp(listener.port)).opened(*row.before)
        body = submit_packet(envelope({"stream": stream})).body
        peer.send(w.submit(FRAME, FRAME, body, trace_id=row.header), *row.after)
        await until(lambda: served.engine.running)
        peer.send(*row.late, w.frame(w.PING))
        kinds = await peer.replies(1)
        while kinds[-1] != w.PONG:
            kinds += await peer.replies(1)
        gate.set()
        await until(lambda: served.records.all)

        (request,) = served.engine.requests
        forwarded = request.policy.trace
        assert (forwarded.traceparent() if forwarded else None) == row.traceparent
        assert served.records.all[0].trace == row.observed
        assert "trace" not in json.dumps(request.body), "it is never part of the body"
        await peer.close()
        await listener.close()
