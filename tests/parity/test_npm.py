# SPDX-License-Identifier: MIT
"""`make parity` without the npm client: it says what to install and fails, instead of leaving families out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[2]


def test_without_npm_the_run_fails_and_says_what_to_install(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "VLLM_NNRP_CACHE": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-m", "tests.parity", "openai"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 1
    assert "not run: openai: install Node.js with its npm client" in run.stdout
