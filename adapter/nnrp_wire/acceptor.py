# SPDX-License-Identifier: MIT
"""One endpoint that is kept open: accepts, waits while the system has no room, and is opened again when it dies."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable

from nnrp_wire.endpoints import Binding, Endpoint, QuicEndpoint, StreamEndpoint, describe
from nnrp_wire.limits import WireLimits

logger = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 64
# A dead socket may stay ready for ever and give nothing: accept() then says EAGAIN, at each turn of the loop.
_FUTILE_WAKEUPS = 100
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# accept() also reports what happened to the connection that it would have returned: accept(2).
_OF_THE_PEER = (
    errno.ECONNABORTED, errno.ENETDOWN, errno.EPROTO, errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.ENONET,
    errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH, errno.EPERM,
)  # fmt: skip

Adopt = Callable[[socket.socket, StreamEndpoint], None]


class Acceptor(ABC):
    """Listening sockets of one endpoint. open() it, or keep_trying(); stop() when no new peers may come; close()."""

    def __init__(self, endpoint: Endpoint, limits: WireLimits, opened: Callable[[], None]) -> None:
        self.endpoint = endpoint  # with the real port once it was open
        self._limits = limits
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self._binding: Binding | None = None
        self._died = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._binding is not None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Bound (host, port) of its internet sockets, while it is open."""
        return [] if self._binding is None else self._binding.addresses

    async def open(self) -> None:
        """Raises OSError if it cannot be opened now; from then on it is kept open."""
        await self._open()
        self.keep_trying()

    def keep_trying(self) -> None:
        """Open it as soon as that can be done, and keep it open."""
        self._supervisor = self._loop.create_task(self._supervise())

    @abstractmethod
    def stop(self) -> None:
        """Take no new peers. Those that are there are not touched."""

    async def close(self) -> None:
        """Let go of the sockets."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait((self._supervisor,))
        self._shut()

    @abstractmethod
    def _readable(self, sock: socket.socket) -> None:
        """A listening socket has something."""

    async def _open(self) -> None:
        self._binding = await self.endpoint.bind(self._limits.backlog)
        self.endpoint = self._binding.endpoint
        self._died.clear()
        self._start_reading()
        self._opened()

    def _shut(self) -> None:
        if self._binding is not None:
            self._stop_reading()
            self._binding.close()
            self._binding = None

    def _start_reading(self) -> None:
        assert self._binding is not None
        for sock in self._binding.sockets:
            self._loop.add_reader(sock, self._readable, sock)

    def _stop_reading(self) -> None:
        assert self._binding is not None
        for sock in self._binding.sockets:
            self._loop.remove_reader(sock)

    def _died_of(self, reason: str) -> None:
        logger.error("%s: the listening socket has died: %s", describe(self.endpoint), reason)
        self._shut()
        self._died.set()

    async def _supervise(self) -> None:
        limits = self._limits
        wait_s = limits.reopen_first_s
        while True:
            if self._binding is None:
                try:
                    await self._open()
                    logger.info("%s: open", describe(self.endpoint))
                except OSError as error:
                    text = error.strerror or error
                    logger.warning("%s: cannot open: %s; again in %.1f s", describe(self.endpoint), text, wait_s)
            opened_s = self._loop.time()
            if self._binding is not None:
                await self._until_it_dies()
            if self._loop.time() - opened_s > limits.reopen_longest_s:
                wait_s = limits.reopen_first_s
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, limits.reopen_longest_s)

    async def _until_it_dies(self) -> None:
        while self._binding is not None:
            try:
                async with asyncio.timeout(self._limits.socket_check_s):
                    await self._died.wait()
            except TimeoutError:
                if self._binding is not None and not self._binding.is_intact():
                    self._died_of("its file was removed or replaced")


class StreamAcceptor(Acceptor):
    """Of stream sockets: hands accepted ones to `adopt`."""

    def __init__(self, endpoint: StreamEndpoint, limits: WireLimits, opened: Callable[[], None], adopt: Adopt) -> None:
        super().__init__(endpoint, limits, opened)
        self._adopt = adopt
        self._retry: asyncio.TimerHandle | None = None  # set: not accepting, for want of room
        self._is_short_of_room = False
        self._futile_wakeups = 0  # since the last peer

    def stop(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
        self._shut()

    def _start_reading(self) -> None:
        self._retry = None
        self._futile_wakeups = 0
        super()._start_reading()

    def _stop_reading(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        super()._stop_reading()

    def _readable(self, sock: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                peer, _ = sock.accept()
            except (BlockingIOError, InterruptedError):
                self._futile_wakeups += 1
                if self._futile_wakeups > _FUTILE_WAKEUPS:
                    self._died_of("it is always ready, and nobody comes")
                return
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self._pause(error)
                elif error.errno not in _OF_THE_PEER:
                    self._died_of(str(error.strerror or error))
                return
            self._is_short_of_room = False
            self._futile_wakeups = 0
            peer.setblocking(False)
            assert not isinstance(self.endpoint, QuicEndpoint)
            self._adopt(peer, self.endpoint)

    def _pause(self, error: OSError) -> None:
        if not self._is_short_of_room:
            self._is_short_of_room = True
            logger.error("%s: cannot accept: %s; trying again", describe(self.endpoint), error.strerror)
        self._stop_reading()
        self._retry = self._loop.call_later(self._limits.accept_retry_s, self._start_reading)
