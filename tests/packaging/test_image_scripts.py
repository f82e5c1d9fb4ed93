# SPDX-License-Identifier: MIT
"""package.sh makes the folder stand alone; build-image.sh chooses what works here and hands on what was set."""

from __future__ import annotations

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.packaging.shell import ROOT, backend_folder, run, script, stand_in

DOCKERFILE = (ROOT / "backend/Dockerfile.python").read_text(encoding="utf-8")
# The arguments that LocalAI's build gives each of its Python backends.
LOCALAI_ARGUMENTS = {
    "BASE_IMAGE", "BACKEND", "BUILD_TYPE", "CUDA_MAJOR_VERSION", "CUDA_MINOR_VERSION", "SKIP_DRIVERS", "TARGETARCH",
    "UBUNTU_VERSION", "APT_MIRROR", "FROM_SOURCE", "DEPS_REFRESH",
}  # fmt: skip
# An engine that works says where its storage is, shows its build's arguments, and no more.
WORKS = """case $1 in
    build) printf '%s\\n' "$@" ;;
    *) echo /tmp ;;
esac"""
BROKEN = "echo cannot connect to the daemon >&2; exit 1"
# (CONTAINER_ENGINE, engine → how it is here, the one that builds or None)
ENGINES = [
    ("auto", {"docker": WORKS, "podman": WORKS, "buildah": WORKS}, "docker"),
    ("auto", {"docker": BROKEN, "podman": WORKS}, "podman"),
    ("auto", {"docker": BROKEN, "podman": BROKEN, "buildah": WORKS}, "buildah"),
    ("auto", {"docker": BROKEN, "podman": BROKEN, "buildah": BROKEN}, None),
    ("podman", {"docker": WORKS, "podman": WORKS}, "podman"),
    ("docker", {"docker": BROKEN, "podman": WORKS}, None),
]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Where build-image.sh finds a wheel."""
    place = tmp_path / "repository"
    (place / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/build-image.sh", place / "scripts")
    (place / "dist").mkdir()
    (place / "dist/vllm_nnrp-1-py3-none-any.whl").touch()
    return place


def engines(tools: Path, here: dict[str, str]) -> None:
    for name in "docker", "podman", "buildah":
        stand_in(tools, name, f"echo {name} >&2\n" + here.get(name, BROKEN))


@pytest.mark.parametrize(("wanted", "here", "builds"), ENGINES)
def test_the_engine_is_one_that_works(repository: Path, wanted: str, here: dict[str, str], builds: str | None) -> None:
    engines(repository / "tools", here)
    env = {"CONTAINER_ENGINE": wanted, "MIN_FREE_GIB": "0"}
    done = run(repository / "scripts/build-image.sh", tools=repository / "tools", env=env)
    assert (done.returncode == 0) == (builds is not None), done.stderr
    if builds:
        assert f" with {builds}," in done.stdout
        assert "peak disk" in done.stdout
    else:
        assert "works here" in done.stderr or "does not work here" in done.stderr


def test_what_is_set_goes_into_the_build_and_nothing_else(repository: Path) -> None:
    engines(repository / "tools", {"buildah": WORKS})
    env = {"MIN_FREE_GIB": "0", "BUILD_TYPE": "cublas", "CUDA_MAJOR_VERSION": "13", "FROM_SOURCE": "true"}
    settings = {"BASE_IMAGE": "debian:13", "TORCH_CPU_INDEX": "", "PIP_INDEX_URL": "https://index.example/simple"}
    done = run(repository / "scripts/build-image.sh", tools=repository / "tools", env=env | settings)
    given = re.findall(r"^--build-arg\n(.*)$", done.stdout, re.MULTILINE)
    del env["MIN_FREE_GIB"]
    assert sorted(given) == sorted(f"{name}={value}" for name, value in (env | settings).items())


def test_too_little_disk_is_told_before_the_build(repository: Path) -> None:
    engines(repository / "tools", {"buildah": WORKS})
    done = run(repository / "scripts/build-image.sh", tools=repository / "tools", env={"MIN_FREE_GIB": "9999999"})
    assert (done.returncode, done.stdout) == (1, "")
    assert "9999999 GiB are needed" in done.stderr


def test_a_failed_build_fails(repository: Path) -> None:
    engines(repository / "tools", {"buildah": "[[ $1 != build ]] || exit 7; echo /tmp"})
    done = run(repository / "scripts/build-image.sh", tools=repository / "tools", env={"MIN_FREE_GIB": "0"})
    assert done.returncode == 1
    assert "the build failed" in done.stderr


def test_the_dockerfile_takes_localais_arguments_and_ends_from_scratch() -> None:
    assert set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.MULTILINE)) >= LOCALAI_ARGUMENTS
    builder, _, final = DOCKERFILE.partition("FROM scratch")
    assert final.split("\n")[1:3] == ["ARG BACKEND=vllm-nnrp", "COPY --from=builder /${BACKEND}/ /"]
    behind_the_install = builder.partition("PORTABLE_PYTHON=true")[2]
    assert not re.search(r"^(RUN|COPY|ADD)", behind_the_install, re.MULTILINE), (
        "each is a copy of the tree for some drivers"
    )


def test_the_folder_stands_alone(tmp_path: Path) -> None:
    folder = backend_folder(tmp_path / "a backend")
    (folder / "venv").mkdir()
    compiled = find_spec("grpc._cython.cygrpc")
    assert compiled is not None
    assert compiled.origin is not None
    shutil.copy(compiled.origin, folder / "venv")  # what packages have, and what loads libraries
    machine = {name: script(tmp_path / "machine" / name, "") for name in ("libnuma.so.1", "libgomp.so.1")}
    known = "".join(f"\t{name} (libc6,x86-64) => {path}\n" for name, path in machine.items())
    stand_in(tmp_path / "tools", "ldconfig", f"echo '{known}'")  # a machine may have neither
    done = run("bash", folder / "package.sh", tools=tmp_path / "tools")
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (folder / "lib").iterdir()}
    assert {"libnuma.so.1", "libgomp.so.1"} <= names
    assert not [name for name in names if name.startswith(("libc.so", "libm.so", "ld-linux"))], (
        "those are the machine's"
    )
    moved = folder.rename(tmp_path / "elsewhere")
    shown = run(moved / "bin/lscpu", "-J", "-e=CPU,CORE,NODE")
    assert json.loads(shown.stdout)["cpus"], shown.stderr


def test_a_library_that_is_missing_is_told_with_its_package(tmp_path: Path) -> None:
    stand_in(tmp_path / "tools", "ldconfig", "exit 0")
    done = run("bash", backend_folder(tmp_path / "backend") / "package.sh", tools=tmp_path / "tools")
    assert done.returncode == 1
    assert "apt-get install libnuma1 libgomp1" in done.stderr
