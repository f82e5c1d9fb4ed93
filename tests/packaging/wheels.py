# SPDX-License-Identifier: MIT
"""Stand-ins for packages: wheels of one module, and a source tree that builds as vLLM's does, by a build backend."""

from __future__ import annotations

import zipfile
from pathlib import Path

# A build backend of its own, so that no other package is needed. It says its progress as ninja does, fails on cue, and
# leaves in the wheel what it was told by the environment.
BUILD_BACKEND = """\
import os, sys, zipfile

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = "vllm-0.26.0+cpu.dist-info"
    os.mkdir(os.path.join(metadata_directory, info))
    with open(os.path.join(metadata_directory, info, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: vllm\\nVersion: 0.26.0+cpu\\n")
    return info

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    print("[1/2] compiling", flush=True)
    if os.path.exists("broken"):
        sys.exit("error: cannot compile")
    names = "VLLM_TARGET_DEVICE", "VLLM_REQUIRE_RUST_FRONTEND", "MAX_JOBS", "TMPDIR", "PATH"
    told = {name: os.environ[name].partition(":")[0] for name in names}
    name = "vllm-0.26.0+cpu-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        info = "vllm-0.26.0+cpu.dist-info"
        wheel.writestr("vllm/__init__.py", f"told = {told!r}")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: vllm\\nVersion: 0.26.0+cpu\\n")
        kind = "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(f"{info}/WHEEL", kind)
        wheel.writestr(f"{info}/RECORD", "")
    print("[2/2] linking", flush=True)
    return name
"""


def wheel(folder: Path, name: str, version: str, code: str = "") -> None:
    """A wheel with one module of that name."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/__init__.py", code)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


def vllm_source(folder: Path, *, broken: bool = False) -> Path:
    """A source tree that builds the distribution vllm."""
    folder.mkdir(parents=True)
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (folder / "pyproject.toml").write_text(project)
    (folder / "backend.py").write_text(BUILD_BACKEND)
    if broken:
        (folder / "broken").touch()
    return folder
