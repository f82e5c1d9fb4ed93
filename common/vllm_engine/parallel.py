# SPDX-License-Identifier: MIT
"""Engines of several ranks: what cannot run here is said before the start, and on a CPU each rank gets its own cores.

A rank is one worker process: tensor × pipeline parallelism of each data-parallel engine on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chatdelta import InvalidRequest
from vllm_engine.installation import Installation

BINDING = "VLLM_CPU_OMP_THREADS_BIND"
CPUS = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")
SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def local_ranks(engine_args: Any) -> int:
    """How many ranks run on this machine."""
    within_engine = int(engine_args.tensor_parallel_size) * int(engine_args.pipeline_parallel_size)
    if engine_args.data_parallel_rank is not None:
        return within_engine  # the other engines are other processes'
    if engine_args.data_parallel_size_local is not None:
        return within_engine * int(engine_args.data_parallel_size_local)
    return within_engine * int(engine_args.data_parallel_size) // max(1, int(engine_args.nnodes))


def refuse_unrunnable(engine_args: Any, installation: Installation, cpus: Sequence[int], *, bound: bool) -> None:
    """Raise InvalidRequest for ranks that cannot start here. vLLM itself counts the GPUs, so only CPUs are counted.

    `bound`: the user binds the ranks to CPUs, so that is none of our business.
    """
    uses_ray = "ray" in (engine_args.distributed_executor_backend, engine_args.data_parallel_backend)
    if uses_ray and find_spec("ray") is None:
        raise InvalidRequest(
            "the Ray executor needs the package ray, which is not installed here", param="distributed_executor_backend"
        )
    ranks = local_ranks(engine_args)
    if installation.is_cpu and not uses_ray and not bound and ranks > len(cpus):
        sizes = ", ".join(f"{name} {size}" for name in SIZES if (size := getattr(engine_args, name)) > 1)
        raise InvalidRequest(
            f"{sizes}: {ranks} processes would run here, each on CPU cores of its own, and {len(cpus)} can be used",
            param=next(name for name in SIZES if getattr(engine_args, name) > 1),
        )


def usable_cpus() -> list[int]:
    """The logical CPUs this process may run on, in order."""
    return sorted(os.sched_getaffinity(0))


def thread_binding(ranks: int, cpus: Sequence[int], *, cpu_folder: Path = CPUS, node_folder: Path = NODES) -> str:
    """The value of BINDING for `ranks` ranks on `cpus`, such as `0,1,2|4,5,6`; empty where vLLM's own will do.

    vLLM puts each rank on a NUMA node of its own and stops when it runs out of nodes. Here a rank gets an equal share
    of the cores, one logical CPU of each; a core is left over for the rest of the process where there are enough.
    """
    if ranks < 2 or ranks <= _numa_nodes(cpus, node_folder):
        return ""
    cores = list({_siblings(cpu, cpu_folder): cpu for cpu in reversed(cpus)}.values())[::-1]
    places = cores if len(cores) >= ranks else list(cpus)
    share = max(1, (len(places) - 1) // ranks)
    return "|".join(",".join(map(str, places[rank * share : (rank + 1) * share])) for rank in range(ranks))


def _numa_nodes(cpus: Sequence[int], folder: Path) -> int:
    """How many NUMA nodes have one of the CPUs."""
    return len({link.parent.name for cpu in cpus for link in folder.glob(f"node[0-9]*/cpu{cpu}")})


def _siblings(cpu: int, folder: Path) -> str:
    """The logical CPUs of the same core, as the kernel writes them."""
    try:
        return (folder / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)
