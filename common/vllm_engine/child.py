# SPDX-License-Identifier: MIT
"""Run inside every process vLLM starts for us (entry point `vllm.general_plugins`): it must not outlive us.

vLLM's engine core does not notice that its parent was killed; it would keep its memory for ever. And when it fails to
start, the parent only learns that it did, so the first error it logs is left in a file for us. In a process that was
not started by us the plugin does nothing: `PARENT_PID` is set by `open_engine()` only.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from vllm_engine.cpu_seeds import let_generators_rewind
from vllm_engine.installation import find_installation

PARENT_PID = "NNRP_ENGINE_PARENT_PID"  # a name without VLLM_ in front: vLLM warns of those it does not know
CAUSE_FILE = "NNRP_ENGINE_CAUSE_FILE"
LOOK_S = 0.5

_watching = threading.Event()  # vLLM may load a plugin several times in one process


def follow_parent() -> None:
    """Leave the terminal's process group, and leave the world when the parent does."""
    root = os.environ.get(PARENT_PID)
    if root is None or int(root) == os.getpid() or _watching.is_set():
        return
    _watching.set()
    if cause_file := os.environ.get(CAUSE_FILE):
        logging.getLogger("vllm").addHandler(_FirstCause(Path(cause_file)))
    if not _is_alive(int(root)):
        os._exit(1)
    if find_installation().is_cpu:
        let_generators_rewind()
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # Ctrl-C is for the parent: it drains first, then stops us
    threading.Thread(target=_watch, args=(os.getppid(),), name="follow-parent", daemon=True).start()


class _FirstCause(logging.Handler):
    """Writes the innermost exception of the first error that is logged with one; later ones are consequences."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.ERROR)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        if not record.exc_info or record.exc_info[1] is None:
            return
        with suppress(OSError), self._path.open("x") as file:  # "x": the first one only, of all processes
            file.write(describe(record.exc_info[1]))


def describe(error: BaseException) -> str:
    """`Type: message` of the innermost cause that says something."""
    while (inner := _cause(error)) is not None:
        error = inner
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{type(error).__name__}: {first['loc'][0] if first['loc'] else error.title}: {first['msg']}"
    return f"{type(error).__name__}: {error}"


def _cause(error: BaseException) -> BaseException | None:
    if isinstance(error, ValidationError):  # what one of vLLM's validators raised, without pydantic's frame around it
        cause = error.errors(include_url=False)[0].get("ctx", {}).get("error")
        return cause if isinstance(cause, BaseException) else None
    cause = error.__cause__ or error.__context__
    # "KeyError: 'x'" is only a key; whoever caught it says what was looked for.
    return None if isinstance(cause, LookupError) else cause


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
