# SPDX-License-Identifier: MIT
"""The folder's shell scripts, run in copies, with stand-ins for the tools that they call."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMON = ROOT / "backend/python/common"
FOLDER = ROOT / "backend/python/vllm-nnrp"
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# What would change which requirements are installed from where.
OURS = (
    "BUILD_",
    "LD_LIBRARY_",
    "CUDA_",
    "PYTHON",
    "PORTABLE_",
    "USE_PIP",
    "ENV_DIR",
    "FROM_SOURCE",
    "PIP_",
    "UV_",
    "TORCH_",
    "VIRTUAL_",
)


def script(path: Path, text: str) -> Path:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def stand_in(tools: Path, name: str, body: str) -> None:
    """A tool in the folder `tools`."""
    script(tools / name, f"#!/bin/bash\n{body}\n")


def same_python(tools: Path) -> None:
    """`python3` is the Python that runs the tests."""
    stand_in(tools, "python3", f'exec "{sys.executable}" "$@"')


def backend_folder(place: Path) -> Path:
    """A copy of the backend's folder as an image holds it: its own files, with libbackend.sh in ./common."""
    place.mkdir(parents=True)
    for path in FOLDER.iterdir():
        if path.is_file():
            shutil.copy(path, place)
    shutil.copytree(COMMON, place / "common")
    return place


def run(
    *command: str | Path, tools: Path | None = None, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in an environment without settings of ours; `tools` comes first on PATH."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    path = f"{tools}:{SYSTEM_PATH}" if tools else SYSTEM_PATH
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        env=clean | {"PATH": path} | dict(env or {}),
    )
