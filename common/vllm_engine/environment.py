# SPDX-License-Identifier: MIT
"""The variables an engine's processes are started with, each only where the user set none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager

from vllm_engine.installation import Installation
from vllm_engine.parallel import BINDING, thread_binding

GIB = 1024**3
MAX_CPU_KV_GIB = 4


def start_environment(
    installation: Installation,
    environ: Mapping[str, str],
    *,
    eager: bool,
    sizes_kv_cache: bool = False,
    ranks: int = 1,
    cpus: Sequence[int] = (),
) -> dict[str, str]:
    """What to add to `environ` for an engine of `ranks` processes on `cpus`; `sizes_kv_cache`: its arguments do.

    `spawn` everywhere: the process has threads (gRPC) when the engine forks. The rest is for CPU hosts: no compiler is
    needed and a start costs seconds less without dynamo (only right with eager mode), one process less, a KV cache
    that leaves the machine usable instead of vLLM's near-total default, and cores of its own for each rank.
    """
    wanted = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    if installation.is_cpu:
        wanted["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        if not sizes_kv_cache:
            wanted["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, min(MAX_CPU_KV_GIB, available_bytes() // 4 // ranks // GIB)))
        if eager:
            wanted["TORCHDYNAMO_DISABLE"] = "1"
        if binding := thread_binding(ranks, cpus):
            wanted[BINDING] = binding
    return {name: value for name, value in wanted.items() if not environ.get(name)}


@contextmanager
def added(environ: MutableMapping[str, str], variables: Mapping[str, str]) -> Iterator[None]:
    """`variables` in `environ` meanwhile: processes inherit them, and the next load is not bound by this one's."""
    before = {name: environ[name] for name in variables if name in environ}
    environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            environ.pop(name, None)
        environ.update(before)


def available_bytes() -> int:
    """Memory that can be used without swapping, in bytes."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
