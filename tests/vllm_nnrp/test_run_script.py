# SPDX-License-Identifier: MIT
"""run.sh, which LocalAI starts: every argument arrives as it was given, and nothing is said that nobody asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "backend/python/vllm-nnrp/run.sh"
ARGUMENTS = ["--addr=127.0.0.1:0", "two words", "", "*", "$HOME", "quote \" and '", "-x", "line\nbreak"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """run.sh beside a virtual environment whose Python only shows its arguments, in a folder with a space."""
    folder = tmp_path / "a backend"
    python = folder / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    python.chmod(0o755)
    shutil.copy(RUN, folder)
    return folder


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script, *arguments], capture_output=True, text=True, timeout=30, check=False)


def test_arguments_with_spaces_arrive_whole(installed: Path) -> None:
    done = run(installed / "run.sh", *ARGUMENTS)
    assert done.stdout.split("\0")[:-1] == [str(installed / "backend.py"), *ARGUMENTS]
    assert (done.returncode, done.stderr) == (0, ""), "it says what it does, as with set -x"


def test_run_sh_can_be_executed_from_anywhere(installed: Path) -> None:
    assert os.access(RUN, os.X_OK)
    done = subprocess.run(
        ["a backend/run.sh"], cwd=installed.parent, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == f"{installed / 'backend.py'}\0"


def test_without_an_environment_run_sh_says_what_to_do(tmp_path: Path) -> None:
    shutil.copy(RUN, tmp_path)
    done = run(tmp_path / "run.sh")
    assert done.returncode != 0
    assert "make install" in done.stderr
