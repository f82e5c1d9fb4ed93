# SPDX-License-Identifier: MIT
"""The variables an engine's processes are started with, each only where the user set none."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vllm_engine.bindings.families import FAMILIES, NEWEST, family_name
from vllm_engine.installation import Installation
from vllm_engine.parallel import BINDING, thread_binding

KIB, GIB = 1024, 1024**3
MAX_CPU_KV_GIB = 4
MEMINFO = Path("/proc/meminfo")
TCMALLOC = "libtcmalloc_minimal.so.4"
LIBRARY_FOLDERS = tuple(Path("/usr/lib") / name for name in ("x86_64-linux-gnu", "aarch64-linux-gnu", "."))


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
    needed and a start costs seconds less without dynamo (only right with eager mode), one process less where vLLM can
    do with that, a KV cache that leaves the machine usable instead of vLLM's near-total default, cores of its own for
    each rank, and for 0.18 the libraries that it wants to see.
    """
    wanted = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    if installation.is_cpu:
        family = FAMILIES.get(family_name(installation.version), NEWEST)
        if family.saves_process:
            wanted["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        if family.wants_preload:
            wanted["LD_PRELOAD"] = preload(Path(sys.prefix))
        if not (sizes_kv_cache and family.sizes_kv_by_argument):
            wanted["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, min(MAX_CPU_KV_GIB, available_bytes() // 4 // ranks // GIB)))
        if eager:
            wanted["TORCHDYNAMO_DISABLE"] = "1"
        if binding := thread_binding(ranks, cpus):
            wanted[BINDING] = binding
    return {name: value for name, value in wanted.items() if not environ.get(name)}


def preload(prefix: Path, folders: Sequence[Path] = LIBRARY_FOLDERS) -> str:
    """LD_PRELOAD as vLLM 0.18 wants it: it looks for the two names in the text, whether they are loaded or not.

    Where there is no tcmalloc the loader of each process warns once that it ignores the name; nothing else changes.
    """
    found = (path for folder in folders for path in sorted(folder.glob("libtcmalloc*.so*")))
    libraries = [str(next(found, TCMALLOC))]
    if platform.machine() == "x86_64":
        libraries.append(str(prefix / "lib" / "libiomp5.so"))
    return ":".join(libraries)


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


def available_bytes(meminfo: Path = MEMINFO) -> int:
    """Memory that can be used without swapping, in bytes: what is free, and what the kernel would give back.

    What is free alone says little: on a machine that has run for a while files fill nearly all of it. Raises OSError,
    and ValueError where the kernel does not tell.
    """
    for line in meminfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.removesuffix("kB")) * KIB
    raise ValueError(f"{meminfo} has no MemAvailable")
