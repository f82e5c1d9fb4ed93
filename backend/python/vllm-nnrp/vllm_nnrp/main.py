# SPDX-License-Identifier: MIT
"""The process: builds everything, owns it, and takes it down in order.

gRPC is bound and Health answers before anything of vLLM is imported. Only this module knows all the others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import uvloop

from chatdelta import BackendFailure, Engine
from vllm_engine import EngineSpec
from vllm_engine.bindings.probing import require_family, untested_note
from vllm_engine.command_line import become_vllm
from vllm_engine.installation import find_installation
from vllm_nnrp.backend_process import FAILURE, BackendProcess, Ending
from vllm_nnrp.loading import OpenEngine
from vllm_nnrp.parent_watch import watch_parent
from vllm_nnrp.processes import exit_now
from vllm_nnrp.settings import Settings, SettingsError

USAGE_ERROR = 2


def main(
    argv: Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    open_engine: OpenEngine | None = None,
    parent_pid: int | None = None,
) -> int:
    """Serve until a signal comes; the exit code. `open_engine` is there for tests that bring their own engine.

    With `serve` as the first word this process becomes vLLM's own server instead.
    `parent_pid` is our parent as it was when the process began: it may have gone while we imported.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["serve"]:
        return become_vllm(arguments)
    try:
        settings = Settings.load(arguments, os.environ if environ is None else environ)
    except SettingsError as exc:
        print(f"vllm-nnrp: {exc}", file=sys.stderr)
        return USAGE_ERROR
    if open_engine is None:
        if not _may_serve(allow_untested=settings.allow_untested_vllm):
            return FAILURE
        open_engine = partial(open_vllm, allow_untested=settings.allow_untested_vllm)
    configure_logging(settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as `vllm serve` is: docs/decisions/0011
        return runner.run(serve(settings, open_engine, parent_pid or os.getppid()))


def _may_serve(*, allow_untested: bool) -> bool:
    """Whether the installed vLLM is one we serve, by its metadata; stderr gets what speaks against it."""
    try:
        installation = find_installation()
    except BackendFailure:
        return True  # a load says so
    try:
        require_family(installation, allow_untested=allow_untested)
    except BackendFailure as exc:
        print(f"vllm-nnrp: {exc}", file=sys.stderr)
        return False
    if note := untested_note(installation):
        print(f"vllm-nnrp: WARNING: {note}", file=sys.stderr, flush=True)
    return True


async def serve(settings: Settings, open_engine: OpenEngine, parent_pid: int) -> int:
    """Run the backend until a signal ends it, the first in order, the second at once; or until its parent is gone."""
    backend = BackendProcess(settings, open_engine)
    if settings.hangup == "reload":
        _on_hangup(backend.reload)
    if settings.watch_parent:
        watch_parent(parent_pid, settings.parent_watch_s, backend.leave)
    signals = _ending_signals(settings)
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, _on_signal, backend, number)
    try:
        ending = await backend.run()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
    if ending.message:
        # LocalAI shows the last line of stderr as the reason.
        print(f"vllm-nnrp: {ending.message}", file=sys.stderr, flush=True)
    if not ending.clean:
        exit_now(ending.code)  # a load in its thread cannot be stopped, only left
    return ending.code


def _ending_signals(settings: Settings) -> tuple[signal.Signals, ...]:
    """Those that stop us. Where SIGHUP does not, it is ignored; the engine's processes inherit that."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and settings.hangup == "stop":
        return (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return (signal.SIGTERM, signal.SIGINT)


def _on_hangup(call: Callable[[], None]) -> None:
    """Call it on the loop at each SIGHUP. Must come before there are other threads.

    The signal stays blocked, and a thread waits for it: so the engine's processes, which inherit the mask, and which a
    closing terminal tells as well, are not ended by it.
    """
    loop = asyncio.get_running_loop()
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))

    def wait() -> None:
        while True:
            signal.sigwait((signal.SIGHUP,))
            with suppress(RuntimeError):  # the loop is closed: we are leaving
                loop.call_soon_threadsafe(call)

    threading.Thread(target=wait, name="hangup", daemon=True).start()


def _on_signal(backend: BackendProcess, number: signal.Signals) -> None:
    if backend.ending:
        exit_now(128 + number)
    logging.getLogger(__name__).info("%s: stopping", number.name)
    backend.end(Ending(0))


async def open_vllm(spec: EngineSpec, *, allow_untested: bool = False) -> Engine:
    """A vLLM engine, imported and built in a worker thread; of a newer vLLM than is tested only if that is allowed."""
    from vllm_engine.opening import open_engine

    engine: Engine = await open_engine(spec, allow_untested=allow_untested)
    return engine


class _Formatter(logging.Formatter):
    """Adds the request id to the lines that have one."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        request_id = getattr(record, "request_id", None)
        return f"{line} request_id={request_id}" if request_id else line


def configure_logging(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("quic").setLevel(max(level, logging.WARNING))  # aioquic tells of each step of each connection
