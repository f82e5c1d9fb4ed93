# SPDX-License-Identifier: MIT
"""One connection of the soak: its sessions, its operations, and every way its client has to end them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from nnrp_wire import QuicEndpoint, UnixEndpoint
from nnrp_wire.endpoints import Endpoint, NetworkEndpoint
from tests.nnrp_openai.fake_carrier import submit_packet
from tests.nnrp_wire.carriers import QUIC, TCP, TLS, UNIX, WS, WSS, Carrier, server_identity
from tests.soak.operations import OF_AN_OPERATION, Operation, Wrong
from tests.support import wire_frames as w
from tests.support.raw_peer import RawPeer

TOO_LATE = b"an early DEADLINE in the past"
DRAIN_MS = 300
IN_FLIGHT = 32
CARRIERS: Mapping[str, Carrier] = {"nnrp": TCP, "nnrps": TLS, "ws": WS, "wss": WSS, "quic": QUIC, "unix": UNIX}
PAUSE, GO_ON = (0, 0, 3, 0, 0, 0, 0), (0, 8, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Target:
    carrier: Carrier
    endpoint: Endpoint

    @classmethod
    def of(cls, url: str) -> Target:
        scheme, _, rest = url.partition("://")
        carrier = CARRIERS[scheme]
        if carrier is UNIX:
            return cls(carrier, UnixEndpoint(rest))
        port = int(rest.rpartition(":")[2])
        if carrier.is_quic:
            return cls(carrier, QuicEndpoint("127.0.0.1", port, server_identity))
        return cls(carrier, NetworkEndpoint("127.0.0.1", port, carrier.is_websocket))

    async def connect(self) -> RawPeer:
        return await self.carrier.peer_at(self.endpoint)


@dataclass(eq=False)
class Session:
    """`closed` is set by the SESSION_CLOSE_ACK."""

    session_id: int
    numbers: Iterator[int] = field(default_factory=lambda: count(1))  # operation and frame ids, the same everywhere
    operations: dict[int, Operation] = field(default_factory=dict)  # by frame id
    early_deadlines: int = 0  # sent
    is_closing: bool = False
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def live(self) -> list[Operation]:
        return [operation for operation in self.operations.values() if not operation.is_over]


class Connection:
    """Made by opened(). read() must run beside everything else. `patience_s`: with a server that says nothing."""

    def __init__(self, peer: RawPeer, patience_s: float) -> None:
        self._peer = peer
        self._patience_s = patience_s
        self._sessions: dict[int, Session] = {}
        self._opened: asyncio.Queue[Session] = asyncio.Queue()
        self.is_gone = False  # by our own will

    @classmethod
    async def opened(cls, target: Target, patience_s: float) -> Connection:
        peer = await target.connect()
        peer.send(w.hello())
        if (await peer.reply()).kind != w.SERVER_HELLO_ACK:
            raise Wrong("no answer to the hello")
        return cls(peer, patience_s)

    # In

    async def read(self) -> None:
        """Everything that comes, until we drop the connection. Raises Wrong."""
        while not self.is_gone:
            try:
                frame = await self._peer.reply(self._patience_s)
            except (asyncio.IncompleteReadError, ConnectionError) as exc:
                if self.is_gone:
                    return
                raise Wrong(f"the server has closed the connection: {self._waiting()}") from exc
            except TimeoutError as exc:
                raise Wrong(f"nothing comes for {self._patience_s:.0f} s: {self._waiting()}") from exc
            if not self.is_gone:
                self._take(frame)

    def _take(self, frame: w.Reply) -> None:
        if frame.kind == w.SESSION_OPEN_ACK:
            session = self._sessions[frame.session_id] = Session(frame.session_id)
            self._opened.put_nowait(session)
            return
        known = self._sessions.get(frame.session_id)
        if frame.kind in OF_AN_OPERATION and known is not None and frame.frame_id in known.operations:
            known.operations[frame.frame_id].take(frame)
        elif frame.kind == w.SESSION_CLOSE_ACK and known is not None and not known.live:
            known.closed.set()
        elif (
            frame.kind == w.ERROR_RECOVERABLE and known is not None and frame.body == TOO_LATE and known.early_deadlines
        ):
            known.early_deadlines -= 1  # it came too late: its operation has none
        elif frame.kind not in (w.TRACE_CONTEXT, w.PONG) or (known is not None and known.closed.is_set()):
            raise Wrong(f"not expected: {frame} in {known}")

    def _waiting(self) -> list[str]:
        """What was not over yet."""
        return [
            f"session {session.session_id}, closing {session.is_closing}: {operation}, may end by {operation.codes}"
            for session in self._sessions.values()
            for operation in session.live
        ]

    # Out

    def _send(self, frame: bytes) -> None:
        if not self.is_gone:
            self._peer.send(frame)

    async def open_session(self) -> Session:
        self._send(w.session_open(max_in_flight=IN_FLIGHT))
        async with asyncio.timeout(self._patience_s):
            return await self._opened.get()

    def submit(self, session: Session, operation: Operation) -> None:
        number = operation.frame_id
        session.operations[number] = operation
        if self.is_gone:
            operation.lose()
        body = submit_packet(operation.envelope).body
        self._send(w.submit(number, number, body, session=session.session_id))

    def pause(self, session: Session) -> None:
        self._send(w.frame(w.BACKPRESSURE, w.PRESSURE.pack(*PAUSE), session=session.session_id))

    def go_on(self, session: Session) -> None:
        self._send(w.frame(w.CREDIT_UPDATE, w.PRESSURE.pack(*GO_ON), session=session.session_id))

    def trace(self, session: Session, trace_id: int) -> None:
        self._send(w.trace(0, trace_id=trace_id, span_id=trace_id, session=session.session_id))

    def early_deadline(self, session: Session, operation: Operation, delay_s: float) -> None:
        number, due_ms = operation.frame_id, _unix_ms(delay_s)
        operation.codes.add(1)
        session.early_deadlines += 1
        self._send(w.schedule(w.DEADLINE, number, number, due_ms, session=session.session_id))

    def supersede(self, session: Session, operation: Operation, new: int) -> None:
        operation.codes.add(2)
        number = operation.frame_id
        self._send(w.supersede(number, new, number, session=session.session_id))

    def close_session(self, session: Session, *, drain_ms: int = 0) -> None:
        """The carrier itself drops (8) what the handler does not within a second: a busy machine may stand still."""
        session.is_closing = True
        self._expect(session.live, 3)
        self._expect(session.live, 8)
        policy = 0 if drain_ms else 1
        self._send(w.session_close(session=session.session_id, policy=policy, drain_ms=drain_ms))

    async def close(self) -> None:
        """In order: every session, then the connection."""
        for session in self._sessions.values():
            if not session.is_closing:
                self.close_session(session)
        async with asyncio.timeout(self._patience_s):
            for session in self._sessions.values():
                await session.closed.wait()
        await self.drop()

    async def drop(self) -> None:
        """Without a word."""
        self.is_gone = True
        for session in self._sessions.values():
            for operation in session.operations.values():
                operation.lose()
            session.closed.set()
        await self._peer.close()

    def end(self, way: str, session: Session, operation: Operation) -> None:
        """By one of ENDS."""
        code, frame = ENDS[way]
        self._expect(session.live if way == "session cancel" else [operation], code)
        self._send(frame(session.session_id, operation.frame_id))

    @staticmethod
    def _expect(operations: list[Operation], code: int) -> None:
        for operation in operations:
            operation.codes.add(code)


def _unix_ms(delay_s: float) -> int:
    return int((time.time() + delay_s) * 1000)


# The ends that are one frame: the drop's code, and the frame for (session id, operation and frame id).
ENDS: Mapping[str, tuple[int, Callable[[int, int], bytes]]] = {
    "cancel": (3, lambda session, number: w.control(w.CANCEL, number, number, session=session)),
    "abort": (3, lambda session, number: w.control(w.ABORT, number, number, session=session)),
    "frame cancel": (3, lambda session, number: w.frame_cancel(number, session=session)),
    "session cancel": (3, lambda session, _number: w.control(w.CANCEL, 0, 0, session=session)),
    "deadline": (1, lambda session, number: w.schedule(w.DEADLINE, number, number, _unix_ms(0), session=session)),
    "expiry": (1, lambda session, number: w.schedule(w.EXPIRE_AT, number, number, _unix_ms(0), session=session)),
}
