# SPDX-License-Identifier: MIT
"""The socket file: what is replaced, what is not, who may connect, and what is left at the end."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import grp
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnrp_wire import unix_socket
from nnrp_wire.unix_socket import bind_unix

OWN_GROUP = grp.getgrgid(os.getgid()).gr_name


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        try:
            peer.connect(str(path))
        except OSError:
            return False
        return True


@pytest.mark.asyncio
@pytest.mark.parametrize(("group", "expected"), [(None, 0o600), (OWN_GROUP, 0o660)], ids=["owner", "group"])
async def test_permissions_come_before_the_first_peer(tmp_path: Path, group: str | None, expected: int) -> None:
    path = tmp_path / "s"
    before = os.umask(0)
    try:
        bound = await bind_unix(str(path), group, 8)
    finally:
        os.umask(before)

    assert mode(path) == expected
    assert answers(path)
    bound.close()
    assert not path.exists()


@pytest.mark.asyncio
async def test_an_unknown_group_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="there is no group 'no-such-group'"):
        await bind_unix(str(tmp_path / "s"), "no-such-group", 8)
    assert os.listdir(tmp_path) == []


@pytest.mark.asyncio
async def test_a_dead_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()

    bound = await bind_unix(str(path), None, 8)
    assert answers(path)
    bound.close()


@contextmanager
def a_file(path: Path) -> Iterator[None]:
    path.write_text("precious")
    yield
    assert path.read_text() == "precious"


@contextmanager
def a_folder(path: Path) -> Iterator[None]:
    path.mkdir()
    yield
    assert path.is_dir()


@contextmanager
def a_link_to_a_dead_socket(path: Path) -> Iterator[None]:
    target = path.with_name("dead")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(target))
    path.symlink_to(target)
    yield
    assert path.is_symlink()
    assert target.exists()


@contextmanager
def a_live_socket(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(path))
        live.listen()
        yield
        assert answers(path)


@contextmanager
def a_live_socket_with_a_full_queue(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as live, socket.socket(socket.AF_UNIX) as waiting:
        live.bind(str(path))
        live.listen(0)
        waiting.connect(str(path))
        yield
        assert path.exists()


@contextmanager
def a_datagram_socket(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as live:
        live.bind(str(path))
        yield
        assert path.exists()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("there", "code"),
    [
        (a_file, errno.EEXIST),
        (a_folder, errno.EEXIST),
        (a_link_to_a_dead_socket, errno.EEXIST),
        (a_live_socket, errno.EADDRINUSE),
        (a_live_socket_with_a_full_queue, errno.EADDRINUSE),
        (a_datagram_socket, errno.EPROTOTYPE),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_what_is_somebodys_stays(tmp_path: Path, there: type, code: int) -> None:
    path = tmp_path / "s"
    with there(path):
        with pytest.raises(OSError) as raised:  # noqa: PT011 - the code is the point
            await bind_unix(str(path), None, 8)
        assert raised.value.errno == code


@pytest.mark.asyncio
async def test_two_that_start_at_once_do_not_remove_each_others_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)

    first, second = await asyncio.gather(bind_unix(path, None, 8), bind_unix(path, None, 8), return_exceptions=True)
    winners = [each for each in (first, second) if isinstance(each, unix_socket.UnixSocket)]
    losers = [each for each in (first, second) if isinstance(each, OSError)]
    assert [each.errno for each in losers] == [errno.EADDRINUSE]
    assert winners[0].is_in_place()
    winners[0].close()


@pytest.mark.asyncio
async def test_a_folder_that_stays_locked_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_socket, "_LOCK_TRIES", 3)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(OSError, match="another process has locked the folder"):
            await bind_unix(str(tmp_path / "s"), None, 8)
    finally:
        os.close(descriptor)


@pytest.mark.asyncio
async def test_closing_leaves_a_successors_socket_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    old = await bind_unix(str(path), None, 8)
    path.unlink()
    new = await bind_unix(str(path), None, 8)

    assert not old.is_in_place()
    old.close()
    assert answers(path)
    new.close()
    assert not path.exists()
