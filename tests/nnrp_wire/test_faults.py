# SPDX-License-Identifier: MIT
"""After each fault of a peer a normal client is served within two seconds.

On tcp, what concerns certificates on tls; on all other transports in `make faults`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from nnrp.native import NativeRuntimeError

from nnrp_wire import WireLimits
from tests.conftest import Figure
from tests.nnrp_wire.carriers import CARRIERS, Carrier, Place, listening
from tests.nnrp_wire.test_acceptor import no_descriptors
from tests.nnrp_wire.test_quic import datagrams, initial
from tests.nnrp_wire.test_slow_peers import sdk_process, small_buffers
from tests.support import wire_frames as w
from tests.support.certificates import make
from tests.support.raw_peer import RawPeer
from tests.support.sdk_client import SdkClient
from tests.support.waiting import until

SERVED_S = 2.0
LIMITS = WireLimits(stall_s=0.5, close_grace_s=0.5, accept_retry_s=0.1, write_high_water_bytes=20_000)
# No system tells that a QUIC client has vanished: only its silence does.
NOTICING = replace(LIMITS, quic_idle_s=2.0, quic_keep_alive_s=0.5)
MIB = 1024 * 1024

Fault = Callable[[Place, AsyncExitStack], Awaitable[None]]


async def abrupt_kill(place: Place, _: AsyncExitStack) -> None:
    async with sdk_process(place, "hold") as process:
        process.kill()
        await until(lambda: place.listener.connection_count == 0)


async def frozen_client(place: Place, _: AsyncExitStack) -> None:
    if not place.carrier.is_quic:
        small_buffers(place.listener)
    async with sdk_process(place, "flood") as process:
        process.send_signal(signal.SIGSTOP)
        await until(lambda: place.listener.connection_count == 0)


async def half_open_handshakes(place: Place, stack: AsyncExitStack) -> None:
    """They stay half open meanwhile."""
    if place.carrier.is_quic:
        sock = await stack.enter_async_context(datagrams(place))
        for _ in range(50):
            sock.send(initial())
        return
    for _ in range(50):
        peer = await place.carrier.stream(place.listener)
        stack.push_async_callback(peer.close)


async def garbage(place: Place, _: AsyncExitStack) -> None:
    await _said_by_many(place, bytes(range(256)) * 40)


async def http_on_the_port(place: Place, _: AsyncExitStack) -> None:
    await _said_by_many(place, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")


async def _said_by_many(place: Place, data: bytes) -> None:
    if place.carrier.is_quic:
        async with datagrams(place) as sock:
            for _ in range(50):
                sock.send(data[:1400])
        return
    for _ in range(50):
        peer = await place.carrier.stream(place.listener)
        peer.writer.write(data)
        await peer.rest()
        await peer.close()


async def oversize_submit(place: Place, _: AsyncExitStack) -> None:
    def scenario(client: SdkClient) -> None:
        with suppress(NativeRuntimeError), client:
            session = client.open_session()
            session.collect(session.submit(b"stream 1 " + b"x" * (17 * MIB)))

    client = await asyncio.to_thread(place.carrier.sdk_client, place.listener)
    with suppress(TimeoutError):
        await asyncio.to_thread(scenario, client)
    await until(lambda: place.listener.connection_count == 0)
    assert not place.handler.operations


async def oversize_reply(place: Place, _: AsyncExitStack) -> None:
    """It never leaves: the client would end its connection."""
    peer = await place.opened(w.submit(5, 1, b"hold"))
    await peer.reply()
    with pytest.raises(ValueError, match="an event has"):
        await place.handler.operations[0].push(bytes(64 * MIB))
    peer.send(w.control(w.CANCEL, 5, 1))
    assert (await peer.reply()).kind == w.RESULT_DROP_REASON
    await peer.close()


async def thousand_sessions(place: Place, stack: AsyncExitStack) -> None:
    client = await asyncio.to_thread(place.carrier.sdk_client, place.listener)
    stack.push_async_callback(asyncio.to_thread, client.close)
    await asyncio.to_thread(lambda: [client.open_session() for _ in range(1000)])
    assert len(place.handler.sessions) == 1000


async def many_connections(place: Place, stack: AsyncExitStack) -> None:
    for _ in range(256):
        peer = await place.opened()
        stack.push_async_callback(peer.close)
    assert place.listener.connection_count == 256


async def no_descriptors_left(place: Place, _: AsyncExitStack) -> None:
    (endpoint,) = place.listener.endpoints
    is_unix = place.carrier.name == "unix"
    address = endpoint.path if is_unix else ("127.0.0.1", endpoint.port)  # type: ignore[union-attr]
    with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET) as waiting:
        waiting.setblocking(False)
        with no_descriptors():
            await asyncio.get_running_loop().sock_connect(waiting, address)
            await until(lambda: place.listener._acceptors[0]._retry is not None)  # type: ignore[attr-defined]


async def certificates_not_trusted(place: Place, _: AsyncExitStack) -> None:
    stranger = make("stranger", is_authority=True).der
    for _try in range(5):
        with pytest.raises(NativeRuntimeError):
            await asyncio.to_thread(SdkClient.connect_url, place.carrier.url(place.listener), stranger)


FAULTS: dict[str, Fault] = {
    function.__name__: function
    for function in (
        abrupt_kill, frozen_client, half_open_handshakes, garbage, http_on_the_port, oversize_submit, oversize_reply,
        thousand_sessions, many_connections, no_descriptors_left, certificates_not_trusted,
    )
}  # fmt: skip


def applies(name: str, carrier: Carrier) -> bool:
    """A QUIC connection needs no descriptor, and only encrypted transports have certificates."""
    if name == no_descriptors_left.__name__:
        return not carrier.is_quic
    return carrier.is_encrypted or name != certificates_not_trusted.__name__


def cases() -> list[Any]:
    """Each fault on each transport it can happen on; always run on the first, else only in `make faults`."""
    return [
        pytest.param(carrier, name, marks=[pytest.mark.faults] if number else [], id=f"{carrier.name}-{name}")
        for name in FAULTS
        for number, carrier in enumerate(each for each in CARRIERS if applies(name, each))
    ]


@asynccontextmanager
async def place_with_witness(carrier: Carrier, limits: WireLimits) -> AsyncIterator[tuple[Place, RawPeer]]:
    """A listener, and a connection on another one of the same process that nothing may disturb."""
    async with listening(carrier, limits) as place, listening(carrier, replace(LIMITS, trace_hold_s=0)) as other:
        witness = await other.opened()
        yield place, witness
        await witness.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(("carrier", "name"), cases())
async def test_a_fault_leaves_others_alone(carrier: Carrier, name: str, figure: Figure) -> None:
    def scenario(place: Place) -> None:
        with carrier.sdk_client(place.listener) as client:
            session = client.open_session()
            session.collect(session.submit(b"stream 3"))

    limits = NOTICING if name == "abrupt_kill" else LIMITS
    async with place_with_witness(carrier, limits) as (place, witness), AsyncExitStack() as stack:
        await FAULTS[name](place, stack)
        started_s = time.monotonic()
        await asyncio.to_thread(scenario, place)
        served_s = time.monotonic() - started_s

        figure(f"{carrier.name} after {name.replace('_', ' ')}: served in {served_s * 1000:.0f} ms")
        assert served_s < SERVED_S
        witness.send(w.submit(5, 1, b"stream 1"))
        assert await witness.replies(2) == [w.PARTIAL_RESULT, w.RESULT_PUSH]
