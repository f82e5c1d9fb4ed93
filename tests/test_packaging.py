# SPDX-License-Identifier: MIT
"""Wheel and sdist build without a network, hold every package with its stubs, and ask for what the stubs need."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
STUBS = PYPROJECT["tool"]["hatch"]["build"]["artifacts"]


def source_files() -> set[str]:
    """Every module and marker of our packages, as a path in the repository."""
    found = {path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()}
    return {path.relative_to(ROOT).as_posix() for path in found if path.suffix != ".pyc"}


def in_wheel(path: str) -> str:
    root = next(package.rpartition("/")[0] for package in PACKAGES if path.startswith(package + "/"))
    return path.removeprefix(root + "/")


def lower_bound(name: str) -> Version:
    requirements = {r.name: r for r in map(Requirement, PYPROJECT["project"]["dependencies"])}
    return next(Version(spec.version) for spec in requirements[name].specifier if spec.operator == ">=")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert run.returncode == 0, run.stdout + run.stderr
    return out


def test_the_stubs_are_built() -> None:
    assert set(STUBS) <= source_files(), "run `make protogen`"


def test_wheel_holds_every_file_of_every_package(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    assert {in_wheel(path) for path in source_files()} <= names


def test_wheel_holds_our_packages_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}
    assert tops == {package.rpartition("/")[2] for package in PACKAGES}


def test_sdist_holds_the_stubs_the_contract_and_the_licence(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {*STUBS, *source_files(), "proto/backend.proto", "LICENSE", "pyproject.toml"} <= names
    assert not [name for name in names if name.startswith(".venv")]


def test_stubs_load_on_the_oldest_protobuf_and_grpcio_that_we_ask_for() -> None:
    messages = (ROOT / "proto/localai_proto/backend_pb2.py").read_text(encoding="utf-8")
    services = (ROOT / "proto/localai_proto/backend_pb2_grpc.py").read_text(encoding="utf-8")
    protobuf = re.search(r"^# Protobuf Python Version: (\S+)$", messages, re.MULTILINE)
    grpcio = re.search(r"^GRPC_GENERATED_VERSION = '(\S+)'$", services, re.MULTILINE)
    assert protobuf is not None
    assert grpcio is not None
    assert Version(protobuf[1]) <= lower_bound("protobuf")
    assert Version(grpcio[1]) <= lower_bound("grpcio")


def test_constraints_are_what_the_locks_hold() -> None:
    def pins(path: str) -> set[str]:
        return {line.split(";")[0].strip() for line in (ROOT / path).read_text(encoding="utf-8").splitlines()}

    pair = {line for line in pins("constraints.txt") if line and not line.startswith("#")}
    for lock in sorted((ROOT / "requirements").glob("lock-*.txt")):
        assert pair <= pins(f"requirements/{lock.name}"), lock.name
