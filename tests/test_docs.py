# SPDX-License-Identifier: MIT
"""What the documents say exists: links, commands, flags, messages, and the example that is shown whole."""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.support.documents import PAGES
from tests.support.reports import ROOT
from vllm_nnrp import cli
from vllm_nnrp.settings_table import SETTINGS

ROOMS = ("adapter", "common", "backend/python")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
ELLIPSIS = "…"
VLLMS_OWN = ("To serve at least one request", "Unknown vLLM environment variable detected")


def names(pages: tuple[Path, ...]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_exist(page: Path) -> None:
    known = {*_subcommands(), "bench"}
    for line in page.read_text().splitlines():
        if "vllm-nnrp " in line and ("    " in line[:4] or "`vllm-nnrp " in line):
            for word in re.findall(r"(?:^|`|/|\s)vllm-nnrp ([a-z][a-z-]+)", line):
                assert word in known, line


def _subcommands() -> set[str]:
    parser = cli._parser()
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return set(commands.choices)


@cache
def written() -> str:
    """All texts in the code, the parts of f-strings joined by an ellipsis, one a line."""
    found: list[str] = []
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [part.value if isinstance(part, ast.Constant) else ELLIPSIS for part in node.values]
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value.replace("%s", ELLIPSIS))
    scripts = [file.read_text() for file in (ROOT / "backend").rglob("*.sh")]
    return "\n".join([*found, *scripts])


def troubles() -> list[str]:
    lines = (ROOT / "docs/troubleshooting.md").read_text().splitlines()
    return [match[1] for line in lines if (match := re.match(r"\| `([^`]+)` \|", line))]


@pytest.mark.parametrize("message", troubles())
def test_a_message_in_troubleshooting_is_one_of_ours(message: str) -> None:
    if message.startswith(VLLMS_OWN):
        return
    for part in filter(None, (part.strip(" :;,") for part in message.split(ELLIPSIS))):
        assert part in written(), part


def test_troubleshooting_has_rows() -> None:
    assert len(troubles()) > 25


def test_the_guides_client_is_the_example() -> None:
    guide = (ROOT / "docs/nnrp-client.md").read_text()
    example = (ROOT / "docs/examples/nnrp_client.py").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert shown == example.partition("\n")[2]
    assert len(shown.splitlines()) <= 60


def test_flags_in_the_service_files_are_the_backends() -> None:
    known = {setting.flag for setting in SETTINGS if setting.flag}
    unit = (ROOT / "contrib/systemd/vllm-nnrp.service").read_text()
    compose = yaml.safe_load((ROOT / "contrib/compose/compose.yaml").read_text())
    (service,) = compose["services"].values()
    used = set(FLAG.findall(re.findall(r"ExecStart=(.*)", unit)[0])) | set(FLAG.findall(" ".join(service["command"])))
    assert used
    assert used <= known


def test_a_python_block_is_python() -> None:
    for page in PAGES:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            ast.parse(block)


def test_a_yaml_block_is_yaml() -> None:
    for page in PAGES:
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
            assert yaml.safe_load(block)


def test_a_shell_block_is_shell() -> None:
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            run = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
            assert run.returncode == 0, f"{page}: {run.stderr}"


@pytest.mark.parametrize("command", sorted(_subcommands()))
def test_help_of_each_command(command: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "vllm_nnrp.cli", command, "--help"], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert "usage" in run.stdout.lower()
