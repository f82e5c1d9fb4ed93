# SPDX-License-Identifier: MIT
"""backend/python/common/libbackend.sh does what LocalAI's does, by its contract: profiles, files, targets."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.shell import COMMON, run, same_python, script, stand_in

# (environment, profile)
PROFILES = [
    ({}, "cpu"),
    ({"BUILD_TYPE": ""}, "cpu"),
    ({"BUILD_TYPE": "", "CUDA_MAJOR_VERSION": "13"}, "cpu"),
    ({"BUILD_TYPE": "cublas", "CUDA_MAJOR_VERSION": "12"}, "cublas12"),
    ({"BUILD_TYPE": "cublas", "CUDA_MAJOR_VERSION": "13"}, "cublas13"),
    ({"BUILD_TYPE": "cublas"}, "cublas"),
    ({"BUILD_TYPE": "l4t", "CUDA_MAJOR_VERSION": "12"}, "l4t12"),
    ({"BUILD_TYPE": "l4t", "CUDA_MAJOR_VERSION": "13"}, "l4t13"),
    ({"BUILD_TYPE": "hipblas"}, "hipblas"),
    ({"BUILD_TYPE": "intel"}, "intel"),
    ({"INTEL_FOLDER": "/usr"}, "intel"),  # any folder that is there stands for /opt/intel
    ({"INTEL_FOLDER": "/usr", "BUILD_TYPE": "cublas", "CUDA_MAJOR_VERSION": "12"}, "cublas12"),
]
NO_INTEL = {"INTEL_FOLDER": "/no/such/folder"}

EVERY = ("-install", "", "-cpu", "-cublas", "-cublas13", "-hipblas", "-intel", "-l4t13", "-after")
EVERY_AFTER = ("-cpu-after", "-cublas13-after", "-hipblas-after", "-intel-after", "-l4t13-after")
# (environment, what is installed of requirements*.txt, in order). Where type and profile have one name, its -after file
# is not read: so it is in LocalAI's.
FILES = [
    ({}, ("-install", "", "-cpu", "-after", "-cpu-after")),
    (
        {"BUILD_TYPE": "cublas", "CUDA_MAJOR_VERSION": "13"},
        ("-install", "", "-cublas", "-cublas13", "-after", "-cublas13-after"),
    ),
    ({"BUILD_TYPE": "l4t", "CUDA_MAJOR_VERSION": "13"}, ("-install", "", "-l4t13", "-after", "-l4t13-after")),
    ({"BUILD_TYPE": "hipblas"}, ("-install", "", "-hipblas", "-after")),
    ({"BUILD_TYPE": "intel"}, ("-install", "", "-intel", "-after")),
]

# (LIMIT_TARGETS, environment, whether the script goes on)
TARGETS = [
    ("cublas cpu", {}, True),
    ("cublas", {}, False),
    ("cublas", {"BUILD_TYPE": "cublas", "CUDA_MAJOR_VERSION": "12"}, True),
    ("cublas13", {"BUILD_TYPE": "cublas", "CUDA_MAJOR_VERSION": "12"}, False),
    ("hipblas intel", {"BUILD_TYPE": "intel"}, True),
]

FAKE_UV = """
case $1 in
    venv)
        mkdir -p "${@: -1}/bin" && printf 'home = /nowhere\\n' >"${@: -1}/pyvenv.cfg"
        ln -s /bin/true "${@: -1}/bin/python"
        ;;
    pip) printf '%s\\n' "$*" ;;
esac
"""


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    """A backend's folder, with a space in its path, beside the library."""
    place = tmp_path / "some where/a-backend"
    place.mkdir(parents=True)
    (place.parent / "common").mkdir()
    (place.parent / "common/libbackend.sh").write_bytes((COMMON / "libbackend.sh").read_bytes())
    return place


def sourcing(backend: Path, then: str) -> Path:
    return script(backend / "script.sh", f'#!/bin/bash\nsource "$(dirname "$0")/../common/libbackend.sh"\n{then}\n')


@pytest.mark.parametrize(("env", "profile"), PROFILES)
def test_profiles(backend: Path, env: dict[str, str], profile: str) -> None:
    done = run(sourcing(backend, 'echo "$BUILD_PROFILE"'), env=NO_INTEL | env)
    assert (done.stdout, done.stderr) == (f"{profile}\n", "")


@pytest.mark.parametrize(("env", "files"), FILES)
def test_requirement_files_in_order(backend: Path, tmp_path: Path, env: dict[str, str], files: tuple[str, ...]) -> None:
    for name in (*EVERY, *EVERY_AFTER):
        (backend / f"requirements{name}.txt").touch()
    stand_in(tmp_path / "tools", "uv", FAKE_UV)
    same_python(tmp_path / "tools")
    done = run(
        sourcing(backend, 'EXTRA_PIP_INSTALL_FLAGS="--one --two=2"\ninstallRequirements'),
        tools=tmp_path / "tools",
        env=NO_INTEL | env,
    )
    installed = [line for line in done.stdout.splitlines() if line.startswith("pip install")]
    assert installed == [
        f"pip install --one --two=2 --requirement {backend}/requirements{name}.txt" for name in files
    ], done.stderr


@pytest.mark.parametrize(("targets", "env", "goes_on"), TARGETS)
def test_targets(backend: Path, targets: str, env: dict[str, str], goes_on: bool) -> None:
    done = run(sourcing(backend, "echo on"), env=NO_INTEL | env | {"LIMIT_TARGETS": targets})
    assert (done.returncode, done.stdout.endswith("on\n")) == (0, goes_on)


def test_the_backend_starts_with_its_arguments_whole_and_its_libraries(backend: Path) -> None:
    python = script(backend / "venv/bin/python", '#!/bin/sh\nprintf "%s\\0" "$LD_LIBRARY_PATH" "$@"\n')
    (backend / "backend.py").touch()
    (backend / "lib").mkdir()
    done = run(sourcing(backend, 'startBackend "$@"'), "--addr=x", "two words", "")
    assert done.stdout.split("\0")[:-1] == [
        str(backend / "lib"),
        str(backend / "backend.py"),
        "--addr=x",
        "two words",
        "",
    ]
    assert python.exists()


def test_a_moved_venv_finds_its_own_python_again(backend: Path) -> None:
    script(backend / "python/bin/python3", "#!/bin/sh\necho python of $0\n")
    (backend / "venv/bin").mkdir(parents=True)
    (backend / "venv/pyvenv.cfg").write_text("home = /build/python/bin\nversion = 3.12\n")
    (backend / "venv/bin/python3").symlink_to("/build/python/bin/python3")
    (backend / "backend.py").touch()
    for _ in "once", "again":
        done = run(sourcing(backend, 'startBackend "$@"'))
        assert done.stdout == f"python of {backend}/venv/bin/python\n", done.stderr
    assert (backend / "venv/pyvenv.cfg").read_text() == f"home = {backend}/python/bin\nversion = 3.12\n"
    assert sorted(path.name for path in (backend / "venv").iterdir()) == ["bin", "pyvenv.cfg"]


def test_this_machines_python_is_taken_along_where_no_standalone_one_is_to_be_had(
    backend: Path, tmp_path: Path
) -> None:
    stand_in(tmp_path / "tools", "uv", "exit 1")
    (tmp_path / "tools/python3").symlink_to(Path(sys.executable).resolve())
    done = run(sourcing(backend, "ensurePortablePython"), tools=tmp_path / "tools")
    assert done.returncode == 0, done.stderr
    moved = backend.parent / "moved"
    (backend / "python").rename(moved)
    told = run(
        moved / "bin/python3", "-I", "-c", "import os, sys; print(sys.prefix, os.__file__.startswith(sys.prefix))"
    )
    assert told.stdout == f"{moved} True\n", told.stderr
    headers = Path(sysconfig.get_path("include"))  # a build from source needs them
    assert (moved / "include" / headers.name / "Python.h").exists() == (headers / "Python.h").exists()


def test_unittests_run_with_the_backends_python(backend: Path) -> None:
    script(backend / "venv/bin/python", '#!/bin/sh\necho "$LD_LIBRARY_PATH" "$PWD" "$@"\n')
    (backend / "test.py").touch()
    (backend / "lib").mkdir()
    assert run(sourcing(backend, "runUnittests")).stdout == f"{backend}/lib {backend} -m unittest test.py\n"
