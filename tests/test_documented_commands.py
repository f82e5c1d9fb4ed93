# SPDX-License-Identifier: MIT
"""Every documented command is run by a test, or a table says why not; the cheap ones run here, as the pages have them.

What stands in: a scripted engine for vLLM, and free ports for the addresses of the pages.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.documented_commands import ALONE, ASKED, COMMANDS, HERE, LOCALAI, PAGE, TLS, Runs
from tests.packaging.test_localai import TREE
from tests.support.documents import documented_commands
from tests.support.reports import ROOT
from tests.support.waiting import wait_until
from vllm_nnrp.client.child import running_backend

WAIT_S = 120.0
MODEL = "demo"
SCRIPTED = "tests.vllm_nnrp_client.scripted_backend"
VLLM_NNRP = f"""#!/bin/bash
# The command, with a scripted engine where it would have vLLM, and another default address.
if [[ $1 == serve ]]; then
    exec "{sys.executable}" -m {SCRIPTED} --addr 127.0.0.1:0 --ready-file ready.json "${{@:2}}"
fi
exec "{sys.executable}" -c 'import os, sys
from vllm_nnrp import cli
cli.NNRP_URL = os.environ.get("DEFAULT_NNRP", cli.NNRP_URL)
sys.exit(cli.main())' "$@"
"""
PYTHON = f'#!/bin/bash\nexec "{sys.executable}" "$@"\n'


def table(test: str) -> list[str]:
    """The documented commands that this test runs, in the pages' order."""
    return [command for command, row in COMMANDS.items() if isinstance(row, Runs) and row.test == test]


def shown(command: str) -> str:
    row = COMMANDS[command]
    assert isinstance(row, Runs)
    return row.shows


# The table


def test_every_documented_command_is_in_the_table() -> None:
    missing = {command: [page.name for page in pages] for command, pages in documented_commands().items()}
    for command in COMMANDS:
        missing.pop(command, None)
    assert not missing, "a test should run them, or tests/documented_commands.py say why none can"


def test_every_command_of_the_table_is_documented() -> None:
    assert set(COMMANDS) <= set(documented_commands())


@pytest.mark.parametrize("test", sorted({row.test for row in COMMANDS.values() if isinstance(row, Runs)}))
def test_a_test_that_the_table_names_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_a_file_or_target_that_a_reason_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for row in COMMANDS.values():
        if not isinstance(row, Runs):
            assert all((ROOT / path).exists() for path in re.findall(r"(?:tests|docs)/[\w/.]+", row.reason)), row
            assert targets >= set(re.findall(r"`make ([a-z-]+)", row.reason)), row


# The commands


@dataclass(frozen=True)
class Place:
    """A folder to run commands in: `vllm-nnrp` and `python` are ours, addresses are replaced as told."""

    folder: Path
    instead: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def made(cls, folder: Path, *, instead: dict[str, str] | None = None, **env: str) -> Place:
        for name, text in ("vllm-nnrp", VLLM_NNRP), ("python", PYTHON):
            for path in folder / "bin" / name, folder / ".venv/bin" / name:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                path.chmod(0o755)
        shutil.copy(ROOT / "docs/examples/nnrp_client.py", folder)
        return cls(folder, instead or {}, env)

    def shell(self, *lines: str) -> tuple[list[str], dict[str, str]]:
        text = "\n".join(("set -e", *lines))
        for old, new in self.instead.items():
            text = text.replace(old, new)
        ours = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_NNRP_")}
        return ["bash", "-c", text], clean | ours | self.env

    def run(self, *lines: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        command, env = self.shell(*lines)
        return subprocess.run(
            command, cwd=self.folder, env=env, input=typed, capture_output=True, text=True, timeout=WAIT_S, check=False
        )


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place beside a running backend, which the README's `make run` would have started."""
    command = (sys.executable, "-m", SCRIPTED)
    with running_backend(("--model", MODEL), command=command) as child:
        doors = child.wait_ready(lambda: None, timeout_s=WAIT_S)
        instead = {"nnrp://127.0.0.1:4433": doors.nnrp, "localhost:50051": doors.grpc}
        yield Place.made(tmp_path_factory.mktemp("asking"), instead=instead, DEFAULT_NNRP=doors.nnrp)


EXPORT, *QUESTIONS = table(ASKED)


@pytest.mark.parametrize("command", QUESTIONS)
def test_a_running_backend_is_asked(asking: Place, command: str) -> None:
    done = asking.run(EXPORT, command, typed="hello\n/exit\n")
    assert done.returncode == 0, done.stderr
    output = asking.folder / "sea.txt"
    assert shown(command) in (output.read_text() if "> sea.txt" in command else done.stdout)


@pytest.mark.parametrize("command", table(ALONE))
def test_a_command_that_needs_nothing(tmp_path: Path, command: str) -> None:
    place = Place.made(tmp_path)
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = place.run(command)
    assert done.returncode == 0, done.stderr
    assert shown(command) in done.stdout


@pytest.mark.parametrize("command", table(PAGE))
def test_a_generated_page_is_what_its_command_prints(tmp_path: Path, command: str) -> None:
    (page,) = documented_commands()[command]
    done = Place.made(tmp_path).run(f"cd {ROOT}", command)  # a page may tell of records in the repository
    assert done.returncode == 0, done.stderr
    assert done.stdout == page.read_text(encoding="utf-8")


@contextmanager
def serving(place: Place, command: str) -> Iterator[str]:
    """The backend by that command; the port of its NNRP door."""
    line, env = place.shell(f"exec {command}")
    process = subprocess.Popen(line, cwd=place.folder, env=env)
    ready = place.folder / "ready.json"
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, timeout_s=WAIT_S)
        yield str(json.loads(ready.read_text())["nnrp"]).rpartition(":")[2]
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0


def test_tls_and_a_token_in_five_lines(tmp_path: Path) -> None:
    *prepare, serve, ask = [
        command for command in table(TLS) if documented_commands()[command][0].name == "security.md"
    ]
    here = {"nnrp.example": "localhost", "0.0.0.0:4433": "0.0.0.0:0"}
    place = Place.made(tmp_path, instead=here)
    done = place.run(*prepare)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0
    with serving(place, serve) as port:
        asking = Place(place.folder, here | {":4433": f":{port}"})
        done = asking.run(ask)
        refused = asking.run(ask.replace("$(cat token)", "wrong"))
    assert done.returncode == 0, done.stderr
    assert shown(ask) in done.stdout
    assert refused.returncode == 1
    assert "token" in refused.stderr


def test_the_edits_of_a_localai_checkout(tmp_path: Path) -> None:
    """The first line says what is to do, the second does it, and then the first has nothing to say."""
    for name, text in TREE.items():
        path = tmp_path / "LocalAI" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "vllm-nnrp/dist").mkdir(parents=True)
    (tmp_path / "vllm-nnrp/contrib").symlink_to(ROOT / "contrib")
    place = Place.made(tmp_path / "vllm-nnrp")
    check, apply = table(LOCALAI)
    version = place.run(
        "python -c 'from importlib.metadata import version as v; print(v(\"vllm-nnrp\"))'"
    ).stdout.strip()
    (tmp_path / f"vllm-nnrp/dist/vllm_nnrp-{version}-py3-none-any.whl").touch()
    assert [place.run(line).returncode for line in (check, apply, check)] == [1, 0, 0]


def test_this_file_is_the_one_that_the_table_names() -> None:
    assert Path(__file__) == ROOT / HERE
