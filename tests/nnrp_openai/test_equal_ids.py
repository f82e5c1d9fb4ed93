# SPDX-License-Identifier: MIT
"""Two clients whose operation, frame and request ids are equal: what one does to its own leaves the other's alone."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from nnrp.core.packet import unpack_body

from chatdelta import ChatRequest, GenerationRequest, Outcome
from chatdelta.testing import Step, Wait, text_script
from nnrp_wire import NnrpListener, WireLimits
from tests.nnrp_openai.fake_carrier import envelope, submit_packet
from tests.nnrp_openai.serving import Served, serving
from tests.nnrp_wire.carriers import TCP, UNIX, WS, Carrier
from tests.support import wire_frames as w
from tests.support.raw_peer import RawPeer
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio

LIMITS = WireLimits(trace_hold_s=0, close_grace_s=0.5)
OPERATION, FRAME, REQUEST = 7, 3, "same"
HALF = 10  # events before the gate, and as many behind it
TERMINALS = (w.RESULT_PUSH, w.RESULT_DROP_REASON)
NAMES = ("ann", "bob")
SOON_S = 1.0
PAUSE = 3  # the level of a BACKPRESSURE


@dataclass(eq=False)
class Line:
    """One connection. `received` is sorted by session."""

    peer: RawPeer
    received: defaultdict[int, list[w.Reply]] = field(default_factory=lambda: defaultdict(list))

    async def listen(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                reply = await self.peer.reply()
                self.received[reply.session_id].append(reply)


@dataclass
class Client:
    """One session, and the gate in the middle of its answer."""

    name: str
    line: Line
    session: int
    gate: asyncio.Event

    def send(self, *frames: bytes) -> None:
        self.line.peer.send(*frames)

    def submit(self) -> None:
        messages = [{"role": "user", "content": self.name}]
        body = submit_packet(envelope({"messages": messages}, request_id=REQUEST)).body
        self.send(w.submit(OPERATION, FRAME, body, session=self.session))

    @property
    def frames(self) -> list[w.Reply]:
        return self.line.received[self.session]

    @property
    def events(self) -> list[Any]:
        """The PARTIAL_RESULTs so far."""
        return [json.loads(reply.body) for reply in self.frames if reply.kind == w.PARTIAL_RESULT]

    @property
    def terminals(self) -> list[w.Reply]:
        return [reply for reply in self.frames if reply.kind in TERMINALS]

    def check_whole(self) -> None:
        """Every event in order, then the result, and nothing else."""
        assert [reply.kind for reply in self.frames] == [w.PARTIAL_RESULT] * 2 * HALF + [w.RESULT_PUSH]
        assert {reply.frame_id for reply in self.frames} == {FRAME}
        sequences = [int.from_bytes(reply.metadata[8:16], "little") for reply in self.frames[:-1]]
        assert sequences == list(range(1, 2 * HALF + 1))
        assert [event["delta"] for event in self.events] == texts(self.name)
        result = json.loads(bytes(unpack_body(self.frames[-1].body).typed_payload_frame_region))
        assert result["body"]["choices"][0]["message"]["content"] == "".join(texts(self.name))


def texts(name: str) -> list[str]:
    return [f"{name}{number} " for number in range(2 * HALF)]


# Where the two are: on the transport of each, or in two sessions of one connection.
Place = tuple[Carrier, Carrier] | None
PLACES: dict[str, Place] = {
    "one connection": None,
    "two connections": (TCP, TCP),
    "tcp and websocket": (TCP, WS),
    "tcp and unix": (TCP, UNIX),
}


@asynccontextmanager
async def two_clients(place: Place) -> AsyncIterator[tuple[Served, list[Client]]]:
    gates = {name: asyncio.Event() for name in NAMES}

    def script(request: GenerationRequest) -> list[Step]:
        assert isinstance(request, ChatRequest)
        name = request.body["messages"][0]["content"]
        steps = list(text_script(*texts(name)))
        return [*steps[:HALF], Wait(gates[name]), *steps[HALF:]]

    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving(script))
        listener = await stack.enter_async_context(NnrpListener(served.handler, LIMITS))
        folder = stack.enter_context(TemporaryDirectory(prefix="nnrp-"))
        lines = await _lines(listener, place, folder, stack)
        sessions = (1, 2) if place is None else (1, 1)
        both = zip(NAMES, lines, sessions, strict=True)
        yield served, [Client(name, line, session, gates[name]) for name, line, session in both]


async def _lines(listener: NnrpListener, place: Place, folder: str, stack: AsyncExitStack) -> list[Line]:
    carriers = (TCP,) if place is None else place
    for carrier in dict.fromkeys(carriers):
        await listener.listen(carrier.endpoint(folder))
    at = {endpoint.transport: endpoint for endpoint in listener.endpoints}
    peers = [await (await carrier.peer_at(at[carrier.name])).opened() for carrier in carriers]
    if place is None:
        peers[0].send(w.session_open())
        assert (await peers[0].reply()).kind == w.SESSION_OPEN_ACK
    lines = [Line(peer) for peer in peers]
    for line in lines:
        task = asyncio.create_task(line.listen())
        stack.push_async_callback(_end, line, task)
    return lines * (2 // len(lines))


async def _end(line: Line, task: asyncio.Task[None]) -> None:
    await line.peer.close()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


# What one of them does to its own


@dataclass(frozen=True)
class Row:
    """`code` of the drop that answers it, None where nobody is left to be told.

    `before`: ahead of the submit. `act`: while both stream. `then`: once the other has its result.
    """

    code: int | None
    act: Callable[[Client], None] = lambda client: None
    before: Callable[[Client], None] = lambda client: None
    then: Callable[[Client], None] | None = None


def _in(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


def cancel(client: Client) -> None:
    client.send(w.control(w.CANCEL, OPERATION, FRAME, session=client.session))


def schedule(kind: int, seconds: float) -> Callable[[Client], None]:
    return lambda client: client.send(w.schedule(kind, OPERATION, FRAME, _in(seconds), session=client.session))


def pause(client: Client) -> None:
    """Of the session."""
    metadata = w.PRESSURE.pack(0, 0, PAUSE, 0, 0, 0, 0)
    client.send(w.frame(w.BACKPRESSURE, metadata, session=client.session))
    client.gate.set()


ROWS: dict[str, Row] = {
    "cancel": Row(3, cancel),
    "abort": Row(3, lambda client: client.send(w.control(w.ABORT, OPERATION, FRAME, session=client.session))),
    "frame cancel": Row(3, lambda client: client.send(w.frame_cancel(FRAME, session=client.session))),
    "session cancel": Row(3, lambda client: client.send(w.control(w.CANCEL, 0, 0, session=client.session))),
    "supersede": Row(2, lambda client: client.send(w.supersede(OPERATION, 8, FRAME, session=client.session))),
    "deadline": Row(1, schedule(w.DEADLINE, 0)),
    "deadline before its submit": Row(1, before=schedule(w.DEADLINE, SOON_S)),
    "expiry": Row(1, schedule(w.EXPIRE_AT, 0)),
    "session close": Row(3, lambda client: client.send(w.session_close(session=client.session, policy=1))),
    "pause": Row(3, pause, then=cancel),
    "disconnect": Row(None, lambda client: client.line.peer.writer.transport.abort()),
}
CASES = [
    pytest.param(place, row, id=f"{row_name}, {place_name}")
    for place_name, place in PLACES.items()
    for row_name, row in ROWS.items()
    if place is not None or row.code is not None  # one connection ends both
]


@pytest.mark.parametrize("who", NAMES)
@pytest.mark.parametrize(("place", "row"), CASES)
async def test_what_one_does_leaves_the_others_equal_operation_alone(place: Place, row: Row, who: str) -> None:
    async with two_clients(place) as (served, clients):
        one, other = clients if who == NAMES[0] else clients[::-1]
        row.before(one)
        for client in clients:
            client.submit()
        await until(lambda: all(len(client.events) == HALF for client in clients))
        assert len(served.engine.running) == 2

        row.act(one)
        if row.then is None:
            await until(lambda: len(served.engine.running) == 1 and (one.terminals or row.code is None))
        other.gate.set()
        await until(lambda: other.terminals)
        if row.then is not None:
            assert one.terminals == []
            row.then(one)
            await until(lambda: one.terminals)
        await until(lambda: not served.engine.running and len(served.records.all) == 2)
        await _all_said({client.line for client in clients if row.code is not None or client is other})

        other.check_whole()
        assert [event["delta"] for event in one.events] == texts(one.name)[:HALF]
        codes = [int.from_bytes(drop.metadata[16:18], "little") for drop in one.terminals]
        assert codes == ([] if row.code is None else [row.code])
        outcomes = {record.origin.session_id: record.outcome for record in served.records.all}
        if place is None:
            assert outcomes == {one.session: Outcome.CANCELLED, other.session: Outcome.COMPLETED}
        else:
            connections = {record.origin.connection_id: record.outcome for record in served.records.all}
            assert sorted(connections.values(), key=str) == [Outcome.CANCELLED, Outcome.COMPLETED]
        assert {record.origin.peer_request_id for record in served.records.all} == {REQUEST}


async def _all_said(lines: set[Line]) -> None:
    """Whatever the server still had to say is here."""
    for line in lines:
        line.peer.send(w.frame(w.PING, session=0))
    await until(lambda: all([reply.kind for reply in line.received[0]] == [w.PONG] for line in lines))
