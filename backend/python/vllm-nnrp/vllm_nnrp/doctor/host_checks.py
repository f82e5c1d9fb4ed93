# SPDX-License-Identifier: MIT
"""The machine: Python, the libraries and programs that vLLM for CPUs loads, memory."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping

from vllm_engine.environment import GIB, available_bytes, start_environment
from vllm_engine.host import cpu_flags, host_lacks, kernel_for, loads
from vllm_engine.installation import Installation
from vllm_nnrp.doctor.findings import Finding, note, ok, problem

PYTHONS = ((3, 11), (3, 14))  # from the first to before the second, as pyproject.toml says
BASE_GIB = 3.0  # what the processes take with a model of no size: 0.9 for ours, 2.0 for the engine's
KV_CACHE = "VLLM_CPU_KVCACHE_SPACE"


def check_python() -> Iterator[Finding]:
    version, (first, end) = platform.python_version(), PYTHONS
    if first <= sys.version_info[:2] < end:
        yield ok("Python", f"{version} at {sys.executable}")
    else:
        yield problem("Python", version, f"use Python {first[0]}.{first[1]} to {end[0]}.{end[1] - 1}")


def check_host(installation: Installation) -> Iterator[Finding]:
    """What the installed vLLM needs."""
    lacks = host_lacks(installation)
    yield from (problem("machine", lack.what, lack.remedy) for lack in lacks)
    if not lacks and installation.is_cpu:
        kernel = f", kernels {kernel_for(cpu_flags())}" if platform.machine() == "x86_64" else ""
        yield ok("machine", f"{platform.machine()}{kernel}; libnuma and lscpu are there")
    yield from check_compiler(installation)


def check_compiler(installation: Installation) -> Iterator[Finding]:
    """Only a start with `enforce_eager: false` compiles on a CPU."""
    if not installation.is_cpu:
        return
    compiler = shutil.which("g++")
    if compiler and loads("libgomp.so.1"):
        yield ok("compiler", f"{compiler}, libgomp")
    else:
        missing = "libgomp.so.1" if compiler else "g++"
        yield note("compiler", f"no {missing}", "needed for enforce_eager: false only; then install g++")


def check_memory(installation: Installation, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Memory is judged for CPUs, where the KV cache is in it, too."""
    available = available_bytes() / GIB
    if not installation.is_cpu:
        yield ok("memory", f"{available:.1f} GiB available")
        return
    kv_cache = environ.get(KV_CACHE) or start_environment(installation, environ, eager=True)[KV_CACHE]
    where = f"{KV_CACHE}={kv_cache}" + ("" if environ.get(KV_CACHE) else ", chosen by how much is free")
    if not kv_cache.isdigit():
        yield problem("memory", f"{KV_CACHE}={kv_cache} is no whole number", "set it in GiB")
        return
    found = f"{available:.1f} GiB available; KV cache {kv_cache} GiB ({where})"
    if available < BASE_GIB + int(kv_cache):
        needed = f"{BASE_GIB + int(kv_cache):.0f} GiB and the model's weights are needed"
        yield problem("memory", found, f"{needed}: free memory, or set a smaller {KV_CACHE}")
    else:
        yield ok("memory", found)


def check_processors() -> Iterator[Finding]:
    usable = len(os.sched_getaffinity(0))
    if usable < 2:
        yield note("processors", "1", "two or more keep the doors quick while the engine computes")
    else:
        yield ok("processors", str(usable))
