# SPDX-License-Identifier: MIT
"""This process and the ones below it, from /proc: their memory, and their end."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

log = logging.getLogger(__name__)

PROC = Path("/proc")
KILL_ROUNDS = 20
KILL_PAUSE_S = 0.02


def descendants(root: int) -> list[int]:
    """Process ids below `root`, parents before children; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in PROC.glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            # "pid (name) state ppid …": the name may hold spaces and brackets.
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found[1:]


def resident_bytes() -> Mapping[str, int]:
    """Resident memory, as `backend` (this process) and `engine` (all below it). Pages they share count twice."""
    me = os.getpid()
    return {"backend": _resident(me), "engine": sum(_resident(pid) for pid in descendants(me))}


def _resident(pid: int) -> int:
    try:
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def kill_descendants() -> None:
    """SIGKILL to everything below this process, but Python's resource tracker, which then cleans up and ends itself."""
    for _ in range(KILL_ROUNDS):  # one may be starting another just now
        victims = [pid for pid in descendants(os.getpid()) if not _is_resource_tracker(pid)]
        if not victims:
            return
        for pid in victims:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(KILL_PAUSE_S)


def _is_resource_tracker(pid: int) -> bool:
    try:
        return b"resource_tracker" in (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return True  # gone


def exit_now(code: int) -> NoReturn:
    """Leave at once, with threads running, but with no child left behind."""
    kill_descendants()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
