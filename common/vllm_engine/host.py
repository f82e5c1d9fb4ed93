# SPDX-License-Identifier: MIT
"""What vLLM for CPUs needs of the machine, found without importing it.

vLLM itself would end with SIGILL, or with a missing `init_cpu_threads_env`, long after the start.
"""

from __future__ import annotations

import ctypes
import platform
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from chatdelta import BackendFailure
from vllm_engine.installation import Installation

CPUINFO = Path("/proc/cpuinfo")
AVX512 = frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq"})
# vLLM's kernels for x86, and what each is compiled for.
KERNELS = {
    "_C": AVX512 | {"avx512_bf16", "avx512_vnni"},
    "_C_AVX512": AVX512,
    "_C_AVX2": frozenset({"avx2", "fma", "f16c"}),
}
FROM_SOURCE = "use a machine that has them, or build vLLM for this one (FROM_SOURCE=true)"


@dataclass(frozen=True, slots=True)
class Lack:
    """Something the machine has not, and what to do."""

    what: str
    remedy: str


def require_host(installation: Installation) -> None:
    """Raise BackendFailure where the installed vLLM cannot run here. Blocks for a moment."""
    if lacks := host_lacks(installation):
        told = "; ".join(f"{lack.what}: {lack.remedy}" for lack in lacks)
        raise BackendFailure(f"vLLM {installation.version} cannot run on this machine: {told}", code="unsupported_host")


def host_lacks(installation: Installation) -> list[Lack]:
    """What is missing here; only vLLM for CPUs is looked at, since the one for GPUs names what it misses."""
    if not installation.is_cpu:
        return []
    lacks = list(_library_lacks(loads))
    if platform.machine() == "x86_64" and (lack := kernel_lack(cpu_flags(), kernels_of(installation))):
        lacks.append(lack)
    return lacks


def kernel_lack(flags: Collection[str], kernels: Collection[str]) -> Lack | None:
    """What a CPU with `flags` is missing for the kernel that vLLM would take of `kernels`; None: nothing."""
    kernel = kernel_for(flags)
    if kernel not in kernels:
        named = ", ".join(sorted(kernels)) or "none"
        return Lack(f"this vLLM has no kernels for this CPU ({kernel} is needed; it has: {named})", FROM_SOURCE)
    if missing := KERNELS[kernel] - set(flags):
        return Lack(f"this CPU lacks the instructions {', '.join(sorted(missing))}", FROM_SOURCE)
    return None


def kernel_for(flags: Collection[str]) -> str:
    """vLLM's choice, which asks torch for AVX-512 and then for its bf16 alone."""
    if not set(flags) >= AVX512:
        return "_C_AVX2"
    return "_C" if "avx512_bf16" in flags else "_C_AVX512"


def kernels_of(installation: Installation) -> set[str]:
    """The names in KERNELS that the installed distribution has files of."""
    files = metadata.files(installation.distribution) or []
    return {file.name.partition(".")[0] for file in files if file.parent.name == "vllm" and file.suffix == ".so"} & {
        *KERNELS
    }


def cpu_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """The instruction sets of the first CPU, in the kernel's words. Raises OSError."""
    for line in cpuinfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def loads(library: str) -> bool:
    """Whether the dynamic linker finds the library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _library_lacks(loads: Callable[[str], bool]) -> Iterator[Lack]:
    if not loads("libnuma.so.1"):
        yield Lack("libnuma.so.1 is not found", "install libnuma1 (Debian, Ubuntu) or numactl-libs (Fedora)")
    if shutil.which("lscpu") is None:
        yield Lack("the program lscpu is not found", "install util-linux")
