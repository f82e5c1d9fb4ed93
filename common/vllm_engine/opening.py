# SPDX-License-Identifier: MIT
"""Building an engine in a worker thread, so that the event loop answers Health meanwhile."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chatdelta import BackendError, BackendFailure, EngineInfo
from vllm_engine.args import build_engine_args, wants_eager
from vllm_engine.child import CAUSE_FILE, PARENT_PID, describe
from vllm_engine.errors import for_peer
from vllm_engine.hub import require_known
from vllm_engine.installation import find_installation, start_environment
from vllm_engine.parser_extensions import refuse_without_extension
from vllm_engine.spec import EngineSpec, refuse_unservable

log = logging.getLogger(__name__)


async def open_engine(spec: EngineSpec, *, stat_loggers: Sequence[Any] = ()) -> Any:
    """A started engine for `spec`; the caller stops it.

    Raises InvalidRequest for what cannot be served and BackendFailure where vLLM fails; the root cause comes first in
    the message. Cancelled meanwhile, the thread shuts its engine down when it gets there: nothing is left running.
    """
    refuse_unservable(spec)
    abandoned = threading.Event()
    try:
        runtime, info = await asyncio.to_thread(_build, spec, tuple(stat_loggers), abandoned)
    except asyncio.CancelledError:
        abandoned.set()
        raise
    from vllm_engine.engine import VllmEngine

    return VllmEngine(runtime, info)


def _build(spec: EngineSpec, stat_loggers: Sequence[Any], abandoned: threading.Event) -> tuple[Any, EngineInfo]:
    with tempfile.TemporaryDirectory(prefix="nnrp-engine-") as folder:
        cause_file = Path(folder) / "cause"
        os.environ[CAUSE_FILE] = str(cause_file)
        try:
            runtime, info = _build_runtime(spec, stat_loggers)
        except BackendError:
            raise
        except Exception as exc:
            log.exception("loading %s failed", spec.names[0])
            cause = cause_file.read_text() if cause_file.exists() else describe(exc)
            raise BackendFailure(for_peer(cause), code="load_failed") from exc
        finally:
            del os.environ[CAUSE_FILE]
    if abandoned.is_set():
        runtime.llm.shutdown()
    return runtime, info


def _build_runtime(spec: EngineSpec, stat_loggers: Sequence[Any]) -> tuple[Any, EngineInfo]:
    installation = find_installation()
    added = start_environment(installation, os.environ, eager=wants_eager(spec, installation))
    if added:
        os.environ.update(added)
        log.info("start settings: %s", " ".join(f"{name}={value}" for name, value in sorted(added.items())))
    os.environ[PARENT_PID] = str(os.getpid())
    from vllm_engine.bindings import select_binding
    from vllm_engine.media import CONNECTOR

    os.environ.setdefault("VLLM_MEDIA_CONNECTOR", CONNECTOR)
    require_known(spec.model)
    binding = select_binding(installation)
    binding.check_parsers(spec)
    refuse_without_extension(spec.tool_parser)
    engine_args = build_engine_args(spec, installation)
    runtime = binding.build(spec, engine_args, stat_loggers)
    config = runtime.llm.model_config
    info = EngineInfo(
        model_names=spec.names,
        max_model_len=config.max_model_len,
        engine_version=installation.version,
        binding=binding.family,
        tool_parser=spec.tool_parser,
        reasoning_parser=spec.reasoning_parser,
        multimodal=bool(config.is_multimodal_model),
    )
    return runtime, info
