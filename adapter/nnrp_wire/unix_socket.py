# SPDX-License-Identifier: MIT
"""A listening socket file that never takes what is somebody else's.

Nothing but a dead socket is ever removed. The file gets its permissions before anybody can connect, and is removed at
the end only if it is still ours.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

MAX_PATH_BYTES = 107  # of a sockaddr_un, its final zero left out
_OWNER_ONLY, _OWNER_AND_GROUP = 0o600, 0o660
_LOCK_TRIES, _LOCK_WAIT_S = 100, 0.02

_Identity = tuple[int, int]  # device, inode


class UnixSocket:
    """A listening socket and its file. Made by bind_unix()."""

    def __init__(self, sock: socket.socket, path: str, identity: _Identity) -> None:
        self.socket = sock
        self._path = path
        self._identity = identity

    def is_in_place(self) -> bool:
        return _identity(self._path) == self._identity

    def close(self) -> None:
        self.socket.close()
        if self.is_in_place():
            with suppress(OSError):
                os.unlink(self._path)


async def bind_unix(path: str, group: str | None, backlog: int) -> UnixSocket:
    """Listen at `path`, for the owner and the members of `group`.

    Raises OSError: EEXIST for what is no socket, EADDRINUSE for one that answers, and whatever the system says.
    """
    async with _folder_locked(os.path.dirname(path) or "."):
        _remove_dead_socket(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.bind(path)  # fails if anything is there
        except BaseException:
            sock.close()
            raise
        identity = _identity(path)
        assert identity is not None, "it was bound a moment ago"
        bound = UnixSocket(sock, path, identity)
        try:
            _restrict(path, group)
            sock.listen(backlog)  # from here on peers can connect
        except BaseException:
            bound.close()
            raise
    return bound


def _restrict(path: str, group: str | None) -> None:
    if group is None:
        os.chmod(path, _OWNER_ONLY)
        return
    try:
        shutil.chown(path, group=group)
    except LookupError:
        raise OSError(errno.EINVAL, f"there is no group {group!r}") from None
    os.chmod(path, _OWNER_AND_GROUP)


def _remove_dead_socket(path: str) -> None:
    """Remove a socket that nobody listens on. Raises OSError for everything else that is there."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "a file that is no socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except BlockingIOError:  # its queue is full: somebody owns it
            raise OSError(errno.EADDRINUSE, "another process listens there") from None
        else:
            raise OSError(errno.EADDRINUSE, "another process listens there")


@asynccontextmanager
async def _folder_locked(folder: str) -> AsyncIterator[None]:
    """Between looking at a dead socket and replacing it, no other process of ours may do the same."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for tries_left in reversed(range(_LOCK_TRIES)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not tries_left:
                    raise OSError(errno.EAGAIN, "another process has locked the folder") from None
            await asyncio.sleep(_LOCK_WAIT_S)
        yield
    finally:
        os.close(descriptor)


def _identity(path: str) -> _Identity | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
