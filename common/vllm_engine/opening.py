# SPDX-License-Identifier: MIT
"""Building an engine in a worker thread, so that the event loop answers Health meanwhile."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from typing import Any

from chatdelta import BackendError, BackendFailure, EngineInfo
from vllm_engine.args import build_engine_args, wants_eager
from vllm_engine.child import PARENT_PID
from vllm_engine.errors import for_peer
from vllm_engine.hub import require_known
from vllm_engine.installation import find_installation, start_environment
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
    try:
        runtime, info = _build_runtime(spec, stat_loggers)
    except BackendError:
        raise
    except Exception as exc:
        log.exception("loading %s failed", spec.names[0])
        raise BackendFailure(for_peer(str(_root_cause(exc)) or type(exc).__name__), code="load_failed") from exc
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

    require_known(spec.model)
    binding = select_binding(installation)
    binding.check_parsers(spec)
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


def _root_cause(exc: BaseException) -> BaseException:
    while exc.__cause__ is not None:
        exc = exc.__cause__
    return exc
