# SPDX-License-Identifier: MIT
"""Building an engine in a worker thread, so that the event loop answers Health meanwhile."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chatdelta import BackendError, BackendFailure, EngineInfo
from vllm_engine.adapters import Adapters
from vllm_engine.args import build_engine_args
from vllm_engine.bindings import select_binding
from vllm_engine.bindings.families import FAMILIES
from vllm_engine.bindings.probing import UNTESTED, require_family, untested_note
from vllm_engine.child import CAUSE_FILE, PARENT_PID, describe
from vllm_engine.environment import added, start_environment
from vllm_engine.errors import for_peer
from vllm_engine.host import require_host
from vllm_engine.hub import require_known
from vllm_engine.installation import Installation, find_installation
from vllm_engine.parallel import BINDING, local_ranks, refuse_unrunnable, usable_cpus
from vllm_engine.parser_extensions import refuse_without_extension
from vllm_engine.spec import EngineSpec
from vllm_engine.unservable import refuse_unservable

log = logging.getLogger(__name__)

Folder = TemporaryDirectory[str]
SOCKETS_FOLDER = "VLLM_RPC_BASE_PATH"  # where vLLM makes its sockets, and leaves them when it is shut down
KV_CACHE_SIZES = {"kv_cache_memory_bytes", "gpu_memory_utilization"}


async def open_engine(spec: EngineSpec, *, stat_loggers: Sequence[Any] = (), allow_untested: bool = False) -> Any:
    """A started engine for `spec`; the caller stops it. A vLLM newer than is tested is used if `allow_untested`.

    Raises InvalidRequest for what cannot be served and BackendFailure where vLLM fails; the root cause comes first in
    the message. Cancelled meanwhile, the thread shuts its engine down when it gets there: nothing is left running.
    """
    abandoned = threading.Event()
    try:
        runtime, info, folder = await asyncio.to_thread(
            _build, spec, tuple(stat_loggers), abandoned, allow_untested=allow_untested
        )
    except asyncio.CancelledError:
        abandoned.set()
        raise
    try:
        return await _complete(runtime, info, spec, folder)
    except BaseException as exc:
        await asyncio.to_thread(runtime.llm.shutdown)
        folder.cleanup()
        if isinstance(exc, BackendError) or not isinstance(exc, Exception):
            raise
        raise _load_failure(spec, describe(exc)) from exc


async def _complete(runtime: Any, info: EngineInfo, spec: EngineSpec, folder: Folder) -> Any:
    """What a built engine needs of the event loop before its first request."""
    from vllm_engine.engine import VllmEngine

    adapters = Adapters(spec)
    await adapters.load(runtime.llm)
    tasks = await runtime.llm.get_supported_tasks()
    return await asyncio.to_thread(VllmEngine, runtime, info, tasks, adapters=adapters, folder=folder)


def _build(
    spec: EngineSpec, stat_loggers: Sequence[Any], abandoned: threading.Event, *, allow_untested: bool
) -> tuple[Any, EngineInfo, Folder]:
    refuse_unservable(spec)
    with ExitStack() as undo:
        folder = Folder(prefix="nnrp-", dir=os.environ.get(SOCKETS_FOLDER))
        undo.callback(folder.cleanup)
        cause_file = Path(folder.name) / "cause"
        try:
            with added(os.environ, {CAUSE_FILE: str(cause_file), SOCKETS_FOLDER: folder.name}):
                runtime, info = _build_runtime(spec, stat_loggers, allow_untested=allow_untested)
        except BackendError:
            raise
        except Exception as exc:
            cause = cause_file.read_text() if cause_file.exists() else describe(exc)
            raise _load_failure(spec, cause) from exc
        if abandoned.is_set():
            runtime.llm.shutdown()
        else:
            undo.pop_all()
    return runtime, info, folder


def _load_failure(spec: EngineSpec, cause: str) -> BackendFailure:
    log.exception("loading %s failed", spec.names[0])
    return BackendFailure(for_peer(cause), code="load_failed")


def _build_runtime(spec: EngineSpec, stat_loggers: Sequence[Any], *, allow_untested: bool) -> tuple[Any, EngineInfo]:
    installation = find_installation()
    require_family(installation, allow_untested=allow_untested)
    require_host(installation)
    require_known(spec.model)
    binding = select_binding(installation, allow_untested=allow_untested)
    from vllm_engine.media import CONNECTOR

    os.environ.setdefault("VLLM_MEDIA_CONNECTOR", CONNECTOR)
    os.environ[PARENT_PID] = str(os.getpid())
    binding.check_parsers(spec)
    refuse_without_extension(spec.tool_parser)
    engine_args = build_engine_args(spec, binding.engine_defaults)
    draft = (engine_args.speculative_config or {}).get("model") or ""
    if "/" in draft:  # and no name of a method
        require_known(draft)
    refuse_unrunnable(engine_args, installation, usable_cpus(), bound=bool(os.environ.get(BINDING)))
    with added(os.environ, _start_environment(spec, engine_args, installation)):
        runtime = binding.build(spec, engine_args, stat_loggers)
    return runtime, engine_info(runtime, spec, installation, binding.family)


def engine_info(runtime: Any, spec: EngineSpec, installation: Installation, family: str) -> EngineInfo:
    config = runtime.llm.model_config
    lacks = {gap.name: gap.what for gap in FAMILIES[family].gaps}
    if note := untested_note(installation):
        lacks[UNTESTED] = note
    return EngineInfo(
        model_names=spec.names,
        max_model_len=config.max_model_len,
        engine_version=installation.version,
        binding=family,
        tool_parser=spec.tool_parser,
        reasoning_parser=spec.reasoning_parser,
        multimodal=bool(config.is_multimodal_model),
        lacks=lacks,
        priority_scheduling=runtime.llm.vllm_config.scheduler_config.policy == "priority",
    )


def _start_environment(spec: EngineSpec, engine_args: Any, installation: Installation) -> dict[str, str]:
    variables = start_environment(
        installation,
        os.environ,
        eager=engine_args.enforce_eager,
        sizes_kv_cache=bool(spec.said() & KV_CACHE_SIZES),
        ranks=local_ranks(engine_args),
        cpus=usable_cpus(),
    )
    if variables:
        log.info("start settings: %s", " ".join(f"{name}={value}" for name, value in sorted(variables.items())))
    return variables
