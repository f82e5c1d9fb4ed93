# SPDX-License-Identifier: MIT
"""The commands that the documents show, as they stand there."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

from tests.support.reports import ROOT

PAGES = tuple(
    page
    for pattern in ("*.md", "docs/**/*.md", "backend/**/*.md", "contrib/**/*.md")
    for page in sorted(ROOT.glob(pattern))
)
OF_THE_PAST = ("CHANGELOG.md",)
DATA = ("[{", "predict ")  # a code block that begins so shows JSON, or a line of the log
IN_A_SENTENCE = re.compile(r"(make|vllm-nnrp|python|pip) \S")
QUOTED = re.compile(r"`([^`]+)`")
REMARK = re.compile(r"\s{3,}|\s+# ")
HEREDOC = re.compile(r"<<'(\w+)'")


@cache
def documented_commands() -> Mapping[str, tuple[Path, ...]]:
    """Each command with the pages that show it, in a code block or inline; its remark left out, its lines joined."""
    found: dict[str, list[Path]] = defaultdict(list)
    for page in PAGES:
        if page.name in OF_THE_PAST:
            continue
        for command in _commands(page.read_text(encoding="utf-8")):
            if page not in found[command]:
                found[command].append(page)
    return {command: tuple(pages) for command, pages in found.items()}


def _commands(text: str) -> Iterator[str]:
    for token in MarkdownIt().parse(text):
        is_shell = token.type == "code_block" or (token.type == "fence" and token.info in ("", "sh"))
        if is_shell and not token.content.startswith(DATA):
            yield from _joined(token.content.splitlines())
        if token.type == "html_block":  # the head of a generated page
            yield from filter(IN_A_SENTENCE.match, QUOTED.findall(token.content))
        for child in token.children or ():
            if child.type == "code_inline" and IN_A_SENTENCE.match(child.content):
                yield child.content


def _joined(lines: list[str]) -> Iterator[str]:
    """Commands of a block: a line, with what a backslash or a here-document adds to it."""
    left = iter(lines)
    for line in left:
        command = line
        while command.endswith("\\"):
            command = " ".join((command.removesuffix("\\").rstrip(), next(left).strip()))
        command = REMARK.split(command.strip())[0]
        if heredoc := HEREDOC.search(command):
            while not command.endswith(f"\n{heredoc[1]}"):
                command += f"\n{next(left)}"
        if command:
            yield command
