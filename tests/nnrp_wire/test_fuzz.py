# SPDX-License-Identifier: MIT
"""Whatever a peer sends: no exception, bounded memory, sound answers, one terminal each, and nobody else notices.

`make test` plays the same examples each time; `make faults` plays many more, new ones each time.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nnrp.runtime import ResultDropReasonCode

from nnrp_wire import NnrpListener, Operation, OperationEnded, QuicEndpoint, Session, WireLimits
from nnrp_wire.carrier import Control
from nnrp_wire.shell import ConnectionShell
from nnrp_wire.state import OperationState
from tests.nnrp_wire.carriers import STREAMS, Carrier, Place, client_context, listening
from tests.nnrp_wire.client_layers import ClientStream
from tests.nnrp_wire.core_peer import CorePeer, later
from tests.nnrp_wire.hostile import damaged, damages, steps, streams
from tests.nnrp_wire.recording_transport import RecordingTransport
from tests.support import wire_frames as w
from tests.support.raw_peer import RawPeer
from tests.support.waiting import until

HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
SAME = settings(max_examples=100, derandomize=True, deadline=None, database=None, suppress_health_check=HEALTH)
MANY = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "2000")), deadline=None, database=None,
    suppress_health_check=HEALTH, print_blob=True,
)  # fmt: skip
FEWER = settings(MANY, max_examples=max(1, MANY.max_examples // 4))  # each with its own connection
LIMITS = WireLimits(
    max_packet_bytes=4096, max_sessions_per_connection=8, max_session_ids_per_connection=16, max_refused_frames=16,
    max_unread_answer_bytes=20_000, max_early_traces=4, trace_hold_s=0,
)  # fmt: skip
TERMINALS = (w.RESULT_PUSH, w.RESULT_DROP_REASON)


# The core


def core_survives(data: bytes, step: int, ends: list[int]) -> None:
    """`ends`: how operations come to their end, in turn."""
    peer = CorePeer(LIMITS)
    replies: list[w.Reply] = []
    for number, at in enumerate(range(0, len(data), step)):
        peer.send(data[at : at + step], now=later(number * 0.01))
        assert len(peer.connection._reader._buffer) <= LIMITS.max_packet_bytes + step
        assert len(peer.connection.sessions) <= LIMITS.max_sessions_per_connection
        assert peer.connection.refused_frames <= LIMITS.max_refused_frames
        assert peer.connection.output_bytes <= LIMITS.max_unread_answer_bytes + LIMITS.max_packet_bytes
        replies += peer.replies()
        if peer.connection.fault is None:
            peer.connection.peer_is_reading()
    peer.tick(later(10_000))
    for operation, end in zip(peer.operations.values(), ends, strict=False):
        with suppress(OperationEnded):
            operation.send_partial(b"event")
        with suppress(OperationEnded):
            operation.send_drop(1 + end, b"", retryable=False)
    replies += peer.replies()
    peer.connection.lose()
    peer.events()

    assert peer.replies() == []
    assert peer.connection.sessions == ()
    assert all(each.state in (OperationState.DONE, OperationState.GONE) for each in peer.operations.values())
    terminals = [(reply.session_id, reply.frame_id) for reply in replies if reply.kind in TERMINALS]
    assert len(terminals) == len(set(terminals))


core_input = given(streams, steps, st.lists(st.integers(0, 7), max_size=20))
test_the_core_survives = SAME(core_input(core_survives))
test_the_core_survives_much_more = pytest.mark.faults(pytest.mark.timeout(3600)(MANY(core_input(core_survives))))


# The shell of every transport, without sockets


class Dropper:
    """carrier.Handler: refuses everything at once."""

    def session_opened(self, session: Session) -> None: ...
    def submitted(self, operation: Operation) -> None:
        self._drop(operation)

    def operation_ended(self, operation: Operation) -> None:
        self._drop(operation)

    def traced(self, session: Session, metadata: Any, operation: Operation | None) -> None: ...
    def controlled(self, session: Session, control: Control, operation: Operation | None) -> None: ...
    def session_closed(self, session: Session) -> None: ...

    @staticmethod
    def _drop(operation: Operation) -> None:
        with suppress(OperationEnded):
            operation.drop(ResultDropReasonCode.PEER_CANCELLED)


def connect(
    listener: NnrpListener, carrier: Carrier, *, is_shaken: bool = True
) -> tuple[ConnectionShell, RecordingTransport, ClientStream]:
    """A connection of the listener, its handshakes done if it `is_shaken`."""
    endpoint = carrier.endpoint("unused")
    assert not isinstance(endpoint, QuicEndpoint)
    shell = listener.new_connection(carrier.name, endpoint.layers(listener.limits))
    transport = RecordingTransport()
    shell.connection_made(transport)
    client = ClientStream(carrier, client_context())
    if is_shaken:
        while not client.is_open:
            feed(shell, transport, client.take_output())
            client.receive(transport.take())
        feed(shell, transport, client.take_output())
    return shell, transport, client


def feed(shell: ConnectionShell, transport: RecordingTransport, data: bytes, step: int = 65536) -> None:
    for at in range(0, len(data), step):
        if transport.is_closing():
            return
        shell.data_received(data[at : at + step])


def shell_survives(
    carrier: Carrier, data: bytes, step: int, outside: tuple[str, float, bytes] | None, *, is_shaken: bool
) -> None:
    """`outside`: damage to what is on the wire. Without `is_shaken` all comes at once, the first handshake too."""

    async def scenario() -> None:
        listener = NnrpListener(Dropper(), LIMITS)
        neighbour, to_neighbour, its_client = connect(listener, carrier)
        shell, transport, client = connect(listener, carrier, is_shaken=is_shaken)
        wire = client.wrap(data) if is_shaken else client.take_output() + data
        feed(shell, transport, damaged(wire, outside) if outside else wire, step)
        await asyncio.sleep(0)
        assert transport.written < 100_000 + 10 * len(wire)
        shell.connection_lost(None)
        assert listener.connection_count == 1

        its_client.receive(to_neighbour.take())
        feed(neighbour, to_neighbour, its_client.wrap(w.hello() + w.frame(w.PING, session=0)))
        await asyncio.sleep(0)
        its_client.receive(to_neighbour.take())
        assert [reply.kind for reply in w.take_apart(its_client.take_packets())] == [w.SERVER_HELLO_ACK, w.PONG]
        neighbour.connection_lost(None)

    asyncio.run(scenario())


def shell_test(carrier: Carrier) -> Callable[..., None]:
    def survives(data: bytes, step: int, outside: tuple[str, float, bytes] | None, is_shaken: bool) -> None:
        shell_survives(carrier, data, step, outside, is_shaken=is_shaken)

    return given(streams, steps, st.none() | damages(), st.booleans() | st.just(True))(survives)


@pytest.mark.parametrize("one", STREAMS, ids=lambda carrier: carrier.name)
def test_the_shell_survives(one: Carrier) -> None:
    SAME(shell_test(one))()


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("one", STREAMS, ids=lambda carrier: carrier.name)
def test_the_shell_survives_much_more(one: Carrier) -> None:
    MANY(shell_test(one))()


# Real sockets


@pytest.fixture
def busy_place(stream_carrier: Carrier) -> Iterator[tuple[asyncio.Runner, Place, RawPeer]]:
    """With a peer whose session is open."""
    with asyncio.Runner() as runner:
        context = listening(stream_carrier, LIMITS)
        place = runner.run(context.__aenter__())
        peer = runner.run(place.opened())
        try:
            yield runner, place, peer
        finally:
            runner.run(peer.close())
            runner.run(context.__aexit__(None, None, None))


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_the_listener_survives_and_others_are_served(busy_place: tuple[asyncio.Runner, Place, RawPeer]) -> None:
    runner, place, other = busy_place

    async def example(data: bytes, outside: tuple[str, float, bytes] | None, is_shaken: bool) -> None:
        peer = await (place.peer() if is_shaken else place.carrier.stream(place.listener))
        if outside is None:
            peer.send_raw(data)
        else:
            peer.writer.write(damaged(data, outside))
        other.send(w.frame(w.PING))
        assert (await other.reply()).kind == w.PONG
        await peer.close()
        await place.handler.until(lambda: place.listener.connection_count == 1)
        await place.handler.forget()

    @FEWER
    @given(streams, st.none() | damages(), st.booleans())
    def play(data: bytes, outside: tuple[str, float, bytes] | None, is_shaken: bool) -> None:
        runner.run(example(data, outside, is_shaken))

    play()
    before = of_connections()
    play()
    with suppress(TimeoutError):  # one that was told why it is closed stays for LIMITS.close_grace_s
        runner.run(until(lambda: (of_connections() - before).total() < 20, every_s=0.2))
    more = of_connections() - before
    assert more.total() < 20, more  # whatever a connection leaves behind, there were hundreds of them


def of_connections() -> Counter[str]:
    """Objects of the kinds that connections are made of, by kind; Hypothesis itself keeps thousands of others."""
    gc.collect()
    packages = {"nnrp_wire", "nnrp", "websockets", "asyncio", "ssl", "_ssl", "tests"}
    kinds = [type(each) for each in gc.get_objects() if not isinstance(each, asyncio.TimerHandle)]  # the loop's own
    return Counter(kind.__qualname__ for kind in kinds if kind.__module__.partition(".")[0] in packages)
