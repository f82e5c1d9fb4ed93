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
from collections.abc import Mapping, Sequence

from chatdelta import Engine
from vllm_engine import EngineSpec
from vllm_nnrp.backend_process import BackendProcess, Ending
from vllm_nnrp.loading import OpenEngine
from vllm_nnrp.processes import exit_now
from vllm_nnrp.settings import Settings, SettingsError

USAGE_ERROR = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(
    argv: Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    open_engine: OpenEngine | None = None,
) -> int:
    """Serve until a signal comes; the exit code. `open_engine` is there for tests that bring their own engine."""
    try:
        settings = Settings.load(sys.argv[1:] if argv is None else argv, os.environ if environ is None else environ)
    except SettingsError as exc:
        print(f"vllm-nnrp: {exc}", file=sys.stderr)
        return USAGE_ERROR
    configure_logging(settings.log_level)
    return asyncio.run(serve(settings, open_engine or open_vllm))


async def serve(settings: Settings, open_engine: OpenEngine) -> int:
    """Run the backend under SIGTERM and SIGINT: the first ends it in order, the second at once."""
    backend = BackendProcess(settings, open_engine)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _on_signal, backend, number)
    try:
        ending = await backend.run()
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
    if ending.message:
        # LocalAI shows the last line of stderr as the reason.
        print(f"vllm-nnrp: {ending.message}", file=sys.stderr, flush=True)
    if not ending.clean:
        exit_now(ending.code)  # a load in its thread cannot be stopped, only left
    return ending.code


def _on_signal(backend: BackendProcess, number: signal.Signals) -> None:
    if backend.ending:
        exit_now(128 + number)
    logging.getLogger(__name__).info("%s: stopping", number.name)
    backend.end(Ending(0))


async def open_vllm(spec: EngineSpec) -> Engine:
    """A vLLM engine, imported and built in a worker thread."""
    from vllm_engine.opening import open_engine

    engine: Engine = await open_engine(spec)
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
