# SPDX-License-Identifier: MIT
"""The memorised model's folder for a test session; built in the user's cache when it is not there yet."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest


@cache
def memorised_model_path() -> Path:
    """Built by a child process, so that a test process neither keeps torch nor has its threads and seeds touched."""
    command = [sys.executable, "-m", "vllm_nnrp.models", "memorised"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Path(run.stdout.strip())


@pytest.fixture(scope="session")
def memorised_model() -> Path:
    """`from tests.support.models import memorised_model` in a conftest.py makes it known to the tests beside it."""
    return memorised_model_path()
