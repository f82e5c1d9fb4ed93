# SPDX-License-Identifier: MIT
"""Datagrams of chance and damaged ones against the QUIC listener, without sockets: no fault, nobody else notices."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import HandshakeCompleted, StreamDataReceived
from hypothesis import given, settings
from hypothesis import strategies as st

from nnrp_wire import NnrpListener
from nnrp_wire.quic_acceptor import QuicAcceptor
from tests.nnrp_wire.carriers import QUIC
from tests.nnrp_wire.hostile import damaged, damages, streams
from tests.nnrp_wire.test_fuzz import LIMITS, MANY, SAME, Dropper
from tests.support import certificates
from tests.support import wire_frames as w

Hurt = tuple[int, tuple[str, float, bytes]]  # which datagram, and how


class Wire:
    """What the listener sends, by address; in place of a socket."""

    def __init__(self) -> None:
        self.sent: dict[Any, list[bytes]] = {}

    def sendto(self, data: bytes, address: Any) -> None:
        self.sent.setdefault(address, []).append(data)


class Client:
    """aioquic's client half on the acceptor's router."""

    def __init__(self, acceptor: QuicAcceptor, wire: Wire, port: int) -> None:
        configuration = QuicConfiguration(is_client=True, server_name="localhost")
        configuration.load_verify_locations(cadata=certificates.authority().pem)
        self.quic = QuicConnection(configuration=configuration)
        self.address = ("127.0.0.1", port)
        self.is_shaken = False
        self._acceptor, self._wire = acceptor, wire
        self._loop = asyncio.get_running_loop()
        self.quic.connect(("127.0.0.1", 4433), now=self._loop.time())

    def output(self) -> list[bytes]:
        return [data for data, _ in self.quic.datagrams_to_send(now=self._loop.time())]

    def deliver(self, data: bytes) -> None:
        self._acceptor._datagram(data, self.address, self._wire)  # type: ignore[arg-type]

    async def shake(self) -> Client:
        async with asyncio.timeout(10):
            while not self.is_shaken:
                await self.exchange()
        return self

    async def replies(self, count: int) -> list[w.Reply]:
        """That many frames."""
        received = b""
        replies: list[w.Reply] = []
        async with asyncio.timeout(10):
            while len(replies) < count:
                received += await self.exchange()
                with suppress(AssertionError, struct.error):  # the last one is not complete
                    replies = w.take_apart(received)
        return replies

    async def exchange(self) -> bytes:
        """What either has to say now; what came on the stream."""
        received = b""
        for data in self.output():
            self.deliver(data)
        await asyncio.sleep(0.001)
        for data in self._wire.sent.pop(self.address, []):
            self.quic.receive_datagram(data, ("127.0.0.1", 4433), now=self._loop.time())
        if (due_s := self.quic.get_timer()) is not None and due_s <= self._loop.time():
            self.quic.handle_timer(now=self._loop.time())
        while (event := self.quic.next_event()) is not None:
            self.is_shaken |= isinstance(event, HandshakeCompleted)
            if isinstance(event, StreamDataReceived):
                received += event.data
        return received


@contextmanager
def nothing_fails() -> Iterator[None]:
    """Faults of the library are caught and logged; here they count."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    logging.getLogger("nnrp_wire").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("nnrp_wire").removeHandler(handler)
    assert not records, records[0].exc_info


def listener_survives(data: bytes, hurts: list[Hurt], noise: list[bytes], is_shaken: bool) -> None:
    async def scenario() -> None:
        listener = NnrpListener(Dropper(), LIMITS)
        acceptor = listener._add(QUIC.endpoint(""))
        assert isinstance(acceptor, QuicAcceptor)
        wire = Wire()
        neighbour, attacker = await Client(acceptor, wire, 1001).shake(), Client(acceptor, wire, 1002)
        if is_shaken:
            await attacker.shake()
        attacker.quic.send_stream_data(0, data)
        for number, datagram in enumerate(attacker.output() + noise):
            for which, hurt in hurts:
                if which == number % 4:
                    attacker.deliver(damaged(datagram, hurt))
            attacker.deliver(datagram)
        await attacker.exchange()

        neighbour.quic.send_stream_data(0, w.hello() + w.frame(w.PING, session=0))
        assert [reply.kind for reply in await neighbour.replies(2)] == [w.SERVER_HELLO_ACK, w.PONG]
        for peer in list(acceptor._places):
            peer.abort()
            peer._terminated()

    with nothing_fails():
        asyncio.run(scenario())


quic_input = given(
    streams,
    st.lists(st.tuples(st.integers(0, 3), damages()), max_size=4),
    st.lists(st.binary(max_size=1300), max_size=5),
    st.booleans(),
)
test_the_listener_survives = settings(SAME, max_examples=40)(quic_input(listener_survives))
test_the_listener_survives_much_more = pytest.mark.faults(
    pytest.mark.timeout(3600)(MANY(quic_input(listener_survives)))
)
