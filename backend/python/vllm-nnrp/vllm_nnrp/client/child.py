# SPDX-License-Identifier: MIT
"""A backend as a child process, for the demo: started on free ports, waited for, and always taken down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vllm_nnrp import parent_watch

READY_S = 600.0
STOP_S = 60.0  # its own grace and engine times fit in
POLL_S = 0.1
TAIL_LINES = 30
FREE_PORT = "nnrp://127.0.0.1:0"


class BackendFailed(Exception):
    """The backend did not do what it should; `str()` is one line, `log` the end of what it said."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, slots=True)
class Doors:
    """Where a ready backend listens."""

    grpc: str  # HOST:PORT
    nnrp: str  # nnrp://HOST:PORT


class BackendChild:
    """One running child. Made by running_backend()."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._ready_file = folder / "ready.json"
        self._log = folder / "log"

    def wait_ready(self, tick: Callable[[], None], *, timeout_s: float = READY_S) -> Doors:
        """Blocks, calling `tick` meanwhile. Raises BackendFailed if the child ends or takes too long."""
        give_up_s = time.monotonic() + timeout_s
        while time.monotonic() < give_up_s:
            if self._ready_file.exists():
                said = json.loads(self._ready_file.read_text(encoding="utf-8"))
                return Doors(said["grpc"], said["nnrp"])
            if (code := self._process.poll()) is not None:
                raise BackendFailed(f"the backend ended with exit code {code} before it was ready", self.log_tail())
            tick()
            time.sleep(POLL_S)
        raise BackendFailed(f"the backend was not ready within {timeout_s:.0f} s", self.log_tail())

    def stop(self) -> int:
        """SIGTERM, and wait. The exit code; killed if it does not go, or on a second Ctrl-C."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.kill()
            return self._process.wait()

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines it wrote to stdout and stderr."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return "".join(text.splitlines(keepends=True)[-lines:])


@contextmanager
def running_backend(
    arguments: Sequence[str], *, command: Sequence[str] | None = None, nnrp: str = FREE_PORT
) -> Iterator[BackendChild]:
    """`vllm-nnrp serve ARGUMENTS` on free ports, or with its NNRP door at `nnrp`.

    Raises BackendFailed in the end if its exit code is not 0. It runs in a session of its own, so that Ctrl-C in
    the terminal reaches it through stop() only; if this process is killed, it leaves by itself.
    """
    # -P: this folder is not the place to import from.
    start = command or (sys.executable, "-P", "-m", "vllm_nnrp", "serve")
    with tempfile.TemporaryDirectory(prefix="vllm-nnrp-") as name:
        folder = Path(name)
        addresses = ("--addr", "127.0.0.1:0", "--nnrp", nnrp)
        ready = ("--ready-file", str(folder / "ready.json"))
        child: BackendChild | None = None
        try:
            with (folder / "log").open("wb") as log, _signals_held():
                process = subprocess.Popen(
                    [*start, *addresses, *ready, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=os.environ | {parent_watch.VARIABLE: "true"},
                )
                child = BackendChild(process, folder)
            yield child
        except BaseException:
            if child is not None:
                child.stop()
            raise
        if (code := child.stop()) != 0:
            raise BackendFailed(f"the backend ended with exit code {code} when it was told to stop", child.log_tail())


@contextmanager
def _signals_held() -> Iterator[None]:
    """SIGINT and SIGTERM wait for the end of the block: inside Popen they would leave a child that nobody owns."""
    caught: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: caught.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt
