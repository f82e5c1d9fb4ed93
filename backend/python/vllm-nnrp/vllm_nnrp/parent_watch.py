# SPDX-License-Identifier: MIT
"""Noticing that whoever started this process is gone: then there is a new parent, and getppid() says so.

Looked at now and then, from a thread: `PR_SET_PDEATHSIG` comes when the *thread* that started us ends, which for a Go
program such as LocalAI is no sign of anything, and the event loop may be busy at the very moment.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

VARIABLE = "LOCALAI_BACKEND_PARENT_WATCH"  # whether it is done
INIT = 1  # never goes, or everybody goes with it


def watch_parent(parent_pid: int, interval_s: float, on_gone: Callable[[], None]) -> None:
    """Call `on_gone`, in a thread, once our parent is another process than `parent_pid`; at once if it is already.

    `parent_pid` should have been read as early as could be: before that, a parent's end leaves no trace.
    """
    if parent_pid > INIT:
        arguments = (parent_pid, interval_s, on_gone)
        threading.Thread(target=_watch, args=arguments, name="parent-watch", daemon=True).start()


def _watch(parent_pid: int, interval_s: float, on_gone: Callable[[], None]) -> None:
    while os.getppid() == parent_pid:
        time.sleep(interval_s)
    on_gone()
