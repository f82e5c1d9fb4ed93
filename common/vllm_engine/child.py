# SPDX-License-Identifier: MIT
"""Run inside every process vLLM starts for us (entry point `vllm.general_plugins`): it must not outlive us.

vLLM's engine core does not notice that its parent was killed; it would keep its memory for ever. In a process that was
not started by us the plugin does nothing: `PARENT_PID` is set by `open_engine()` only.
"""

from __future__ import annotations

import os
import threading
import time

PARENT_PID = "NNRP_ENGINE_PARENT_PID"  # a name without VLLM_ in front: vLLM warns of those it does not know
LOOK_S = 0.5

_watching = threading.Event()  # vLLM may load a plugin several times in one process


def follow_parent() -> None:
    """Leave the terminal's process group, and leave the world when the parent does."""
    root = os.environ.get(PARENT_PID)
    if root is None or int(root) == os.getpid() or _watching.is_set():
        return
    _watching.set()
    if not _is_alive(int(root)):
        os._exit(1)
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # Ctrl-C is for the parent: it drains first, then stops us
    threading.Thread(target=_watch, args=(os.getppid(),), name="follow-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
