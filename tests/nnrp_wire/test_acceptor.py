# SPDX-License-Identifier: MIT
"""Listening sockets stay open: no descriptors, sockets that die, files that vanish, ports taken; several at once."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnrp_wire import NetworkEndpoint, NnrpListener, UnixEndpoint, WireLimits
from nnrp_wire.acceptor import StreamAcceptor
from tests.nnrp_wire.carriers import CARRIERS, TCP, UNIX, Carrier, Place, listening
from tests.nnrp_wire.scripted_handler import ScriptedHandler
from tests.support import wire_frames as w
from tests.support.raw_peer import RawPeer
from tests.support.waiting import until

TIMEOUT_S = 10
QUICK = WireLimits(trace_hold_s=0, accept_retry_s=0.05, reopen_first_s=0.02, reopen_longest_s=0.2, socket_check_s=0.02)


def acceptor_of(place: Place) -> StreamAcceptor:
    (acceptor,) = place.listener._acceptors
    assert isinstance(acceptor, StreamAcceptor)
    return acceptor


# Out of descriptors


@contextmanager
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = os.dup(0)  # the lowest free number: there is none below the limit now
    resource.setrlimit(resource.RLIMIT_NOFILE, (last, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(last)


def begin_connect(sock: socket.socket, address: str | tuple[str, int]) -> None:
    """Not by the loop, which may open a file for it."""
    assert sock.connect_ex(address) in (0, errno.EINPROGRESS)


@pytest.mark.asyncio
async def test_without_descriptors_accepting_rests_and_goes_on(
    stream_carrier: Carrier, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    accept = StreamAcceptor._readable

    def counted(self: StreamAcceptor, sock: socket.socket) -> None:
        nonlocal tries
        tries += 1
        accept(self, sock)

    monkeypatch.setattr(StreamAcceptor, "_readable", counted)
    async with listening(stream_carrier, QUICK) as place:
        other = await place.opened()
        (endpoint,) = place.listener.endpoints
        waiting = socket.socket(socket.AF_UNIX if isinstance(endpoint, UnixEndpoint) else socket.AF_INET)
        waiting.setblocking(False)
        address = endpoint.path if isinstance(endpoint, UnixEndpoint) else ("127.0.0.1", endpoint.port)
        before = tries
        with no_descriptors():
            begin_connect(waiting, address)
            await until(lambda: tries >= before + 4)
            other.send(w.submit(5, 1, b"stream 1"))  # who is in is served meanwhile
            assert await other.replies(2) == [w.PARTIAL_RESULT, w.RESULT_PUSH]
            assert tries < before + 40, "it spins"

        await until(lambda: place.listener.connection_count == 2)
        assert caplog.text.count("cannot accept: Too many open files") == 1
        waiting.close()
        await (await place.opened()).close()
        await other.close()


@pytest.mark.asyncio
async def test_a_listener_closes_while_it_waits_for_descriptors() -> None:
    async with listening(TCP, QUICK) as place:
        client = socket.socket()
        client.setblocking(False)
        with no_descriptors():
            begin_connect(client, ("127.0.0.1", place.listener.port))
            await until(lambda: acceptor_of(place)._retry is not None)
            await place.listener.close()
        client.close()


# Death and rebirth


def kill(place: Place) -> None:
    """As the kernel would: accept() fails from now on."""
    binding = acceptor_of(place)._binding
    assert binding is not None
    for sock in binding.sockets:
        sock.shutdown(socket.SHUT_RDWR)


@pytest.mark.asyncio
async def test_a_dead_listening_socket_is_opened_again_at_its_port(
    stream_carrier: Carrier, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(stream_carrier, QUICK) as place:
        before = place.listener.endpoints
        other = await place.opened()
        kill(place)
        await until(lambda: place.listener.endpoints == ())
        await until(lambda: place.listener.endpoints == before)

        assert "the listening socket has died" in caplog.text
        await (await place.opened()).close()
        other.send(w.frame(w.PING))
        assert (await other.reply()).kind == w.PONG
        await other.close()


@pytest.mark.asyncio
async def test_it_is_tried_again_ever_more_slowly(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(TCP, QUICK) as place:
        port = place.listener.port
        kill(place)
        acceptor_of(place)._shut()
        with socket.socket() as thief:
            thief.bind(("127.0.0.1", port))
            thief.listen()
            await until(lambda: caplog.text.count("cannot open: Address already in use") >= 4)
        await until(lambda: place.listener.addresses == (("127.0.0.1", port),))

        waits = [float(wait) for wait in re.findall(r"again in ([\d.]+) s", caplog.text)]
        assert waits == sorted(waits)
        assert waits[0] < waits[-1] <= QUICK.reopen_longest_s
        await (await place.opened()).close()


@pytest.mark.asyncio
@pytest.mark.parametrize("successor", [False, True], ids=["removed", "replaced by another process"])
async def test_a_socket_file_that_vanished_is_made_again(successor: bool) -> None:
    async with listening(UNIX, QUICK) as place:
        (endpoint,) = place.listener.endpoints
        assert isinstance(endpoint, UnixEndpoint)
        path = endpoint.path
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as other:
            if successor:
                other.bind(path)
                other.listen()
                await until(lambda: place.listener.endpoints == ())
        await until(lambda: place.listener.endpoints == (endpoint,) and os.path.exists(path))

        await (await place.opened()).close()
        assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.asyncio
async def test_opened_is_called_at_each_opening() -> None:
    opened: list[int] = []
    async with NnrpListener(ScriptedHandler(), QUICK, lambda: opened.append(listener.port)) as listener:
        await listener.listen(NetworkEndpoint("127.0.0.1", 0))
        place = Place(TCP, listener, ScriptedHandler())
        kill(place)
        await until(lambda: len(opened) == 2)
    assert opened[0] == opened[1] > 0


# Several


@pytest.mark.asyncio
async def test_several_at_once_share_handler_and_limits(tmp_path: Path) -> None:
    handler = ScriptedHandler()
    limits = WireLimits(trace_hold_s=0, max_connections=len(CARRIERS))
    async with NnrpListener(handler, limits) as listener:
        for carrier in CARRIERS:
            await listener.listen(carrier.endpoint(str(tmp_path)))
        assert len(set(listener.addresses)) == 5
        peers = []
        for carrier, endpoint in zip(CARRIERS, listener.endpoints, strict=True):
            peer = await (await carrier.peer_at(endpoint)).opened(w.submit(5, 1, b"stream 1"))
            assert await peer.replies(2) == [w.PARTIAL_RESULT, w.RESULT_PUSH]
            peers.append(peer)
        one_more = await RawPeer.unix(str(tmp_path / "nnrp.sock"))
        assert await one_more.rest() == b""

        assert [session.transport for session in handler.sessions] == [carrier.name for carrier in CARRIERS]
        for peer in (*peers, one_more):
            await peer.close()


@pytest.mark.asyncio
async def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        thief.listen()
        taken = NetworkEndpoint("127.0.0.1", thief.getsockname()[1])
        async with NnrpListener(ScriptedHandler(), QUICK) as listener:
            await listener.listen(UNIX.endpoint(str(tmp_path)))
            with pytest.raises(OSError, match="Address already in use"):
                await listener.listen(taken)
            listener.keep_trying(taken)
            await (await (await RawPeer.unix(str(tmp_path / "nnrp.sock"))).opened()).close()
            assert len(listener.endpoints) == 1

            thief.close()
            await until(lambda: taken in listener.endpoints)
            await (await (await RawPeer.tcp(taken.port)).opened()).close()


@pytest.mark.asyncio
async def test_a_name_with_several_addresses_has_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    async def two_addresses(*_: object, **__: object) -> Sequence[object]:
        tcp = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        not_here = (socket.AF_INET, *tcp, ("192.0.2.1", 0))  # of a network for documentation: nobody has it
        return [not_here] + [(socket.AF_INET, *tcp, (f"127.0.0.{number}", 0)) for number in (1, 2, 2)]

    monkeypatch.setattr(loop, "getaddrinfo", two_addresses)
    async with NnrpListener(ScriptedHandler(), QUICK) as listener:
        await listener.listen(NetworkEndpoint("both.test", 0))
        assert [host for host, _ in listener.addresses] == ["127.0.0.1", "127.0.0.2"]
        assert {port for _, port in listener.addresses} == {listener.port}
        (endpoint,) = listener.endpoints
        assert endpoint == NetworkEndpoint("both.test", listener.port)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("host", "code"),
    [("192.0.2.1", errno.EADDRNOTAVAIL), ("no-such-host.invalid", socket.EAI_NONAME), ("a" * 70, errno.EINVAL)],
    ids=["not an address of ours", "unknown", "no name"],
)
async def test_a_host_that_cannot_be_bound_is_an_error(host: str, code: int) -> None:
    async with NnrpListener(ScriptedHandler(), QUICK) as listener:
        with pytest.raises(OSError) as raised:  # noqa: PT011 - the code is the point
            await listener.listen(NetworkEndpoint(host, 0))
        assert raised.value.errno in (code, socket.EAI_AGAIN)
        assert listener.endpoints == ()
