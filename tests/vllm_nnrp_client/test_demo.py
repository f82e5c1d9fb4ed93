# SPDX-License-Identifier: MIT
"""The demo with a scripted engine in the real process: what it shows, what it returns, and that nothing is left."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.process import all_gone
from tests.support.waiting import wait_until
from tests.vllm_nnrp_client.test_terminal import BACKEND
from vllm_nnrp.client import demo
from vllm_nnrp.client.child import BackendFailed, running_backend
from vllm_nnrp.processes import descendants

ENDS_AT_ONCE = (sys.executable, "-c", "import sys; print('no such model'); sys.exit(3)")
# Ready, with doors nobody answers at; goes with 4 when it is told to go.
BAD_ENDING = (
    sys.executable,
    "-c",
    "import json, pathlib, signal, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))\n"
    "file = pathlib.Path(sys.argv[sys.argv.index('--ready-file') + 1])\n"
    "file.write_text(json.dumps({'grpc': '127.0.0.1:1', 'nnrp': 'nnrp://127.0.0.1:1'}))\n"
    "signal.pause()",
)


def run(command: tuple[str, ...], model: Path | None = Path("scripted")) -> tuple[int, str]:
    out = io.StringIO()
    code = demo.run_demo(Console(file=out, highlight=False), build=lambda: model, command=command)
    return code, out.getvalue()


def test_both_doors_answer_and_the_backend_ends_cleanly() -> None:
    before = descendants(os.getpid())
    code, shown = run(BACKEND)
    assert code == 0
    assert shown.count("text       'The'") == 2
    assert shown.count("usage      prompt 7, completion 3") == 2
    assert shown.count("A: The capital of France is Paris.\n7 prompt + 3 answer tokens · first token after ") == 2
    assert "backend     stopped cleanly" in shown
    assert shown.endswith("both doors gave the right answer\n")
    assert descendants(os.getpid()) == before


def test_a_wrong_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "QUESTION", "fail")
    code, shown = run(BACKEND)
    assert code == 1
    assert shown.endswith("wrong answer over gRPC and NNRP\n")


def test_a_backend_that_does_not_start_shows_the_end_of_its_log() -> None:
    code, shown = run(ENDS_AT_ONCE)
    assert code == 1
    assert shown.endswith("the backend ended with exit code 3 before it was ready\nno such model\n")


def test_a_backend_that_does_not_end_well_is_a_failure() -> None:
    code, shown = run(BAD_ENDING)
    assert code == 1
    assert "cannot talk gRPC to 127.0.0.1:1: connection refused" in shown
    assert "the backend ended with exit code 4 when it was told to stop" in shown


def test_without_a_model_there_is_no_demo() -> None:
    assert run(BACKEND, None) == (1, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_the_backend_down(number: signal.Signals) -> None:
    before = set(descendants(os.getpid()))
    handler = signal.getsignal(signal.SIGTERM)
    started: list[Callable[[], bool]] = [lambda: bool(set(descendants(os.getpid())) - before)]

    def interrupt() -> None:
        wait_until(started[0])
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    never_ready = (sys.executable, "-c", "import time; time.sleep(600)")
    code, shown = run(never_ready)
    thread.join()
    assert code == 130
    assert shown.endswith("interrupted; nothing is left running\n")
    assert set(descendants(os.getpid())) == before
    assert signal.getsignal(signal.SIGTERM) is handler


def test_waiting_has_an_end() -> None:
    with (
        pytest.raises(BackendFailed, match="not ready within 0 s"),
        running_backend((), command=(sys.executable, "-c", "import time; time.sleep(600)")) as child,
    ):
        child.wait_ready(lambda: None, timeout_s=0.2)


def test_a_build_that_fails_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise ImportError("No module named 'torch'")

    monkeypatch.setattr("vllm_nnrp.models.demo.build_demo_model", fail)
    out = io.StringIO()
    assert demo.build_model(Console(file=out)) is None
    assert out.getvalue().startswith("building the demo model needs torch, transformers and gguf: run `make install`")


STARTER = """
import json, sys
from vllm_nnrp.client.child import running_backend

with running_backend(("--model", "scripted"), command=json.loads(sys.argv[1])) as child:
    child.wait_ready(lambda: None)
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_backend_leaves_when_its_starter_is_killed() -> None:
    command = [sys.executable, "-c", STARTER, json.dumps(BACKEND)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
        left = descendants(starter.pid)
        assert left
        starter.kill()
    wait_until(lambda: all_gone(left))
