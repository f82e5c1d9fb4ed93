# SPDX-License-Identifier: MIT
"""What runs inside vLLM's processes: they end with their parent, and leave the cause of a failed start behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from tests.support.process import all_gone
from tests.support.waiting import wait_until
from vllm_engine.child import CAUSE_FILE, PARENT_PID, describe

CHILD = (
    "from vllm_engine.child import follow_parent; follow_parent(); import time; print('up', flush=True); time.sleep(60)"
)
PARENT = f"""
import os, subprocess, sys
os.environ[{PARENT_PID!r}] = str(os.getpid())
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, os.getpgid(child.pid), flush=True)
child.wait()
"""
FAILING = """
import logging
from vllm_engine.child import follow_parent
follow_parent()
log = logging.getLogger("vllm.v1.engine.core")
for message in ("no memory", "a consequence"):
    try:
        try:
            raise MemoryError(message)
        except MemoryError as exc:
            raise RuntimeError("engine core failed") from exc
    except RuntimeError:
        log.exception("EngineCore failed to start.")
"""


def test_a_child_leaves_the_parents_group_and_dies_with_it() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child, group = (int(number) for number in parent.stdout.readline().split())
        assert group == child
        parent.send_signal(signal.SIGKILL)
        wait_until(lambda: all_gone([child]))


def test_a_process_that_is_not_ours_is_left_alone() -> None:
    environ = {name: value for name, value in os.environ.items() if name != PARENT_PID}
    code = (
        "import os; from vllm_engine.child import follow_parent; follow_parent(); import threading; print(os.getpgrp())"
    )
    code += "; print(threading.active_count())"
    run = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert [int(number) for number in run.stdout.split()] == [os.getpgrp(), 1]


def test_the_first_cause_of_a_failed_start_is_left_in_the_file(tmp_path: Path) -> None:
    cause = tmp_path / "cause"
    environ = os.environ | {PARENT_PID: str(os.getpid()), CAUSE_FILE: str(cause)}
    subprocess.run([sys.executable, "-c", FAILING], env=environ, capture_output=True, check=True)
    assert cause.read_text() == "MemoryError: no memory"


@pytest.mark.parametrize("how", ["cause", "context"])
def test_the_innermost_error_is_described(how: str) -> None:
    inner, outer = MemoryError("inner"), RuntimeError("outer")
    setattr(outer, f"__{how}__", inner)
    assert describe(outer) == "MemoryError: inner"


@pytest.mark.parametrize("nothing", [KeyError("qwen9"), IndexError("list index out of range")])
def test_a_failed_lookup_is_described_by_who_looked(nothing: Exception) -> None:
    outer = ValueError("the kind of model qwen9 is not known")
    outer.__cause__ = nothing
    assert describe(outer) == "ValueError: the kind of model qwen9 is not known"
    assert describe(nothing).startswith(type(nothing).__name__)


class Config(BaseModel):
    length: int = 1

    @field_validator("length")
    @classmethod
    def fits(cls, length: int) -> int:
        if length > 9:
            raise ValueError(f"a length of {length} is greater than the model's (9)")
        return length


@pytest.mark.parametrize(
    ("length", "told"),
    [
        (10, "ValueError: a length of 10 is greater than the model's (9)"),
        ("x", "ValidationError: length: Input should be a valid integer, unable to parse string as an integer"),
    ],
)
def test_what_a_validator_says_is_told_without_pydantics_frame(length: object, told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate({"length": length})
    outer = RuntimeError("the configuration failed")
    outer.__cause__ = caught.value
    assert describe(outer) == told
