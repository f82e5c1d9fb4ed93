# SPDX-License-Identifier: MIT
"""The program itself: in a terminal of its own, in a pipe, and with nobody to talk to."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from vllm_nnrp.client.child import BackendChild, Doors, running_backend

WAIT_S = 30.0
CONTROL_CODES = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
BACKEND = (sys.executable, "-m", "tests.vllm_nnrp_client.scripted_backend")
CHAT = (sys.executable, "-m", "vllm_nnrp", "chat")
NEUTRAL = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", "NO_COLOR": "", "VLLM_NNRP_MODEL": "scripted"}
ENVIRON = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "PYTHONSTARTUP")} | NEUTRAL


@dataclass(frozen=True)
class Backend:
    child: BackendChild
    doors: Doors

    def where(self, door: str) -> tuple[str, ...]:
        return ("--grpc", self.doors.grpc) if door == "grpc" else ("--nnrp", self.doors.nnrp)


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with running_backend(("--model", "scripted"), command=BACKEND) as child:
        yield Backend(child, child.wait_ready(lambda: None, timeout_s=WAIT_S))


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._raw = b""
        self._unread = ""
        self._position = 0

    def wait_for(self, text: str) -> str:
        """What is shown up to and with `text`, control codes left out; the next call goes on behind it."""
        give_up_s = time.monotonic() + WAIT_S
        while text not in self._unread:
            assert time.monotonic() < give_up_s, f"not shown in time: {text!r}; so far: {self._unread!r}"
            with suppress(OSError):  # nothing to read, or the program has ended
                self._raw += os.read(self._master, 4096)
                self._unread = CONTROL_CODES.sub("", self._raw.decode(errors="ignore"))[self._position :]
                continue
            time.sleep(0.01)
        end = self._unread.index(text) + len(text)
        seen, self._unread = self._unread[:end], self._unread[end:]
        self._position += end
        return seen

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt_prompt(self) -> None:
        """Type Ctrl-C once the program waits for its line.

        Between the prompt and the read CPython takes note of a signal and acts on it after the read only; a person
        is never that fast, a test is.
        """
        stat = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")
        self.type("\x03")


@contextmanager
def terminal(*command: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    process = subprocess.Popen(
        [sys.executable, "-c", LEADER, *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=ENVIRON,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


# Takes the pseudo-terminal as its own, so that a typed Ctrl-C becomes SIGINT.
LEADER = f"import fcntl, os, sys; fcntl.ioctl(0, {termios.TIOCSCTTY}, 0); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.parametrize("door", ["grpc", "nnrp"])
def test_ctrl_c_cancels_the_answer_and_keeps_the_program(backend: Backend, door: str) -> None:
    aborted = backend.child.log_tail(1000).count("aborted\n")
    with terminal(*CHAT, *backend.where(door)) as shell:
        shell.wait_for("you> ")
        shell.type("count\n")
        shell.wait_for("3 4 ")
        shell.type("\x03")
        shell.wait_for("cancelled")
        shell.wait_for("you> ")
        wait_until(lambda: backend.child.log_tail(1000).count("aborted\n") == aborted + 1)
        shell.type("hello\n")
        assert "The capital of France is Paris." in shell.wait_for("stop")
        shell.wait_for("you> ")
        shell.type("\x04")
        assert shell.process.wait(WAIT_S) == 0


def test_ctrl_c_twice_at_the_prompt_ends(backend: Backend) -> None:
    with terminal(*CHAT, *backend.where("grpc")) as shell:
        shell.wait_for("you> ")
        shell.interrupt_prompt()
        shell.wait_for("Ctrl-C again")
        shell.wait_for("you> ")
        shell.interrupt_prompt()
        assert shell.process.wait(WAIT_S) == 0


def test_a_single_question_that_is_cancelled_ends_with_130(backend: Backend) -> None:
    with terminal(*CHAT, *backend.where("nnrp"), "count") as shell:
        shell.wait_for("3 4 ")
        shell.type("\x03")
        shell.wait_for("cancelled")
        assert shell.process.wait(WAIT_S) == 130


def test_a_terminal_shows_reasoning_a_box_and_asks_for_the_result(backend: Backend) -> None:
    with terminal(*CHAT, *backend.where("nnrp")) as shell:
        shell.wait_for("you> ")
        shell.type("weather\n")
        shown = shell.wait_for("result of get_weather> ")
        assert "Look it up." in shown
        assert "╭─ tool call" in shown
        assert "5 prompt + 5 answer tokens" in shown
        shell.type("17 degrees\n")
        assert "So it is 17 degrees." in shell.wait_for("you> ")
        shell.type("/exit\n")
        assert shell.process.wait(WAIT_S) == 0


def chat(*arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CHAT, *arguments], input=lines, capture_output=True, text=True, env=ENVIRON, timeout=WAIT_S, check=False
    )


@pytest.mark.parametrize("door", ["grpc", "nnrp"])
def test_a_pipe_gets_only_the_answer(backend: Backend, door: str) -> None:
    run = chat(*backend.where(door), "hello")
    assert (run.returncode, run.stdout) == (0, "The capital of France is Paris.\n")
    assert run.stderr.startswith("7 prompt + 3 answer tokens · first token after ")
    assert "\x1b" not in run.stdout + run.stderr


def test_a_conversation_through_a_pipe(backend: Backend) -> None:
    run = chat(*backend.where("grpc"), "--system", "be kind", lines="hello\n\n/new\nhistory\n")
    assert run.returncode == 0
    assert run.stdout == "The capital of France is Paris.\nsystem: be kind | user: history\n"
    assert "you>" not in run.stdout + run.stderr


def test_a_failure_exits_with_1(backend: Backend) -> None:
    run = chat(*backend.where("nnrp"), "fail")
    assert (run.returncode, run.stdout) == (1, "half\n")
    assert run.stderr == "error backend_error: the engine lost it\n"


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        (("--grpc", "127.0.0.1:1"), "error: cannot talk gRPC to 127.0.0.1:1: connection refused\n"),
        (("--nnrp", "nnrp://127.0.0.1:1"), "error: cannot talk NNRP to nnrp://127.0.0.1:1: connection refused\n"),
    ],
)
def test_nobody_there(where: tuple[str, str], complaint: str) -> None:
    run = chat(*where, "hello")
    assert (run.returncode, run.stdout, run.stderr) == (1, "", complaint)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--grpc", "nowhere"), "'nowhere' is no address: HOST:PORT is expected"),
        (
            ("--nnrp", "http://x"),
            "'http://x' is no NNRP address: "
            "nnrp://HOST:PORT, nnrps://, ws://, wss://, quic:// or unix:///PATH is expected",
        ),
        (("--tools", "no-such-file"), "no-such-file cannot be read: No such file or directory"),
        (("--max-tokens", "0"), "'0' is no whole number of at least 1"),
        (("--temperature", "3"), "'3' is no number from 0 to 2"),
        (("--grpc", "h:1", "--nnrp", "nnrp://h:1"), "not allowed with argument"),
    ],
)
def test_wrong_flags_are_said_in_words(arguments: tuple[str, ...], complaint: str) -> None:
    run = chat(*arguments, "hello")
    assert run.returncode == 2
    assert complaint in run.stderr


def test_nnrp_needs_a_model() -> None:
    environ = {name: value for name, value in ENVIRON.items() if name != "VLLM_NNRP_MODEL"}
    run = subprocess.run([*CHAT, "hello"], capture_output=True, text=True, env=environ, timeout=WAIT_S, check=False)
    assert run.returncode == 2
    assert "NNRP needs --model (or VLLM_NNRP_MODEL)" in run.stderr


def test_the_console_script_is_this_program() -> None:
    script = Path(sys.executable).with_name("vllm-nnrp")
    for command in ((str(script),), (sys.executable, "-m", "vllm_nnrp")):
        run = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=WAIT_S, check=True)
        assert run.stdout.startswith("vllm-nnrp 0.")
