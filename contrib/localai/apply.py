# SPDX-License-Identifier: MIT
"""Put vllm-nnrp into a LocalAI checkout: `python contrib/localai/apply.py CHECKOUT [--wheel FILE] [--check]`.

Everything that edits.toml lists is worked out before anything is written. An anchor that is not there, or not once,
is an error that names file and anchor, and then the checkout stays as it was. What is there already is left alone, so
a second run changes nothing and says so. Needs only Python's standard library.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
LANDMARK = "backend/backend.proto"  # a LocalAI checkout has it
BACKEND = "backend/python/vllm-nnrp"


class ApplyError(Exception):
    """The checkout is not what the edits expect; the message names every place."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Our `text` belongs directly behind `anchor`, or in front of it; the anchor stands in `file` once."""

    file: str
    why: str
    anchor: str
    text: str
    behind: bool

    def applied_to(self, content: str) -> str:
        """The file's content with our text in it; unchanged where it is there already. ApplyError names the anchor."""
        joined = self.anchor + self.text if self.behind else self.text + self.anchor
        if joined in content:
            return content
        found = content.count(self.anchor)
        if found != 1:
            raise ApplyError(f"{self.file}: the anchor for “{self.why}” stands there {found} times: {self.anchor!r}")
        return content.replace(self.anchor, joined)


@dataclass(frozen=True, slots=True)
class Copy:
    """A file of ours that becomes `target`."""

    source: Path
    target: str


def load() -> tuple[list[Edit], list[Copy]]:
    """What edits.toml says."""
    table = tomllib.loads((HERE / "edits.toml").read_text(encoding="utf-8"))
    return [_edit(entry) for entry in table["edit"]], [copy for entry in table["copy"] for copy in _copies(entry)]


def _edit(entry: dict[str, Any]) -> Edit:
    behind = "after" in entry
    text = entry["text"] if "text" in entry else _part(entry)
    return Edit(entry["file"], entry["why"], entry["after" if behind else "before"], text, behind)


def _part(entry: dict[str, Any]) -> str:
    """The text file, from the first line `from` to before the next line `until`."""
    lines = (HERE / entry["text_file"]).read_text(encoding="utf-8").splitlines(keepends=True)
    bare = [line.rstrip("\n") for line in lines]
    start = bare.index(entry["from"]) if "from" in entry else 0
    end = bare.index(entry["until"], start) if "until" in entry else len(lines)
    return "".join(lines[start:end])


def _copies(entry: dict[str, str]) -> list[Copy]:
    source = REPOSITORY / entry["source"]
    if source.name != "*":
        return [Copy(source, entry["target"])]
    files = sorted(path for path in source.parent.iterdir() if path.is_file())
    return [Copy(path, f"{entry['target']}/{path.name}") for path in files]


def planned(checkout: Path, edits: Sequence[Edit], copies: Sequence[Copy]) -> dict[Path, tuple[bytes, int]]:
    """Path in the checkout → new content and mode, for each file that has to change. ApplyError lists what is amiss."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    problems: list[str] = []
    for edit in edits:
        try:
            if edit.file not in before:
                before[edit.file] = after[edit.file] = (checkout / edit.file).read_bytes().decode()
            after[edit.file] = edit.applied_to(after[edit.file])
        except FileNotFoundError:
            problems.append(f"{edit.file}: the file is not there (for “{edit.why}”)")
        except ApplyError as exc:
            problems.append(str(exc))
    if problems:
        raise ApplyError("\n".join(problems))
    changes = {}
    for file, content in after.items():
        if content != before[file]:
            path = checkout / file
            changes[path] = (content.encode(), path.stat().st_mode & 0o777)
    for copy in copies:
        path, ours = checkout / copy.target, copy.source.read_bytes()
        if not path.is_file() or path.read_bytes() != ours:
            changes[path] = (ours, copy.source.stat().st_mode & 0o777)
    return changes


def write(changes: dict[Path, tuple[bytes, int]]) -> None:
    """First every new content beside its file, then all into place: a full disk leaves the checkout as it was."""
    new: list[tuple[Path, Path]] = []
    try:
        for path, (content, mode) in changes.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            staged = path.with_name(f"{path.name}.vllm-nnrp-new")
            new.append((staged, path))
            staged.write_bytes(content)
            staged.chmod(mode)
    except OSError:
        for staged, _ in new:
            staged.unlink(missing_ok=True)
        raise
    for staged, path in new:
        os.replace(staged, path)


def main(argv: Sequence[str] | None = None) -> int:
    """0: applied, or applied already; 1: something is amiss and nothing was written (--check: or not applied yet)."""
    parser = argparse.ArgumentParser(description="Put vllm-nnrp into a LocalAI checkout.", allow_abbrev=False)
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    parser.add_argument(
        "--wheel", type=Path, metavar="FILE", help=f"goes to {BACKEND}/wheels/, for a version not on an index"
    )
    parser.add_argument("--check", action="store_true", help="only say what would change")
    args = parser.parse_args(argv)
    if not (args.checkout / LANDMARK).is_file():
        print(f"apply: {args.checkout} is no LocalAI checkout: it has no {LANDMARK}", file=sys.stderr)
        return 1
    edits, copies = load()
    if args.wheel is not None:
        copies.append(Copy(args.wheel, f"{BACKEND}/wheels/{args.wheel.name}"))
    try:
        changes = planned(args.checkout, edits, copies)
    except ApplyError as exc:
        print(f"apply: nothing was changed.\n{exc}", file=sys.stderr)
        return 1
    if not changes:
        print(f"apply: vllm-nnrp is in {args.checkout} already, all {len(edits)} edits and {len(copies)} files")
        return 0
    for path in changes:
        print(f"apply: {path.relative_to(args.checkout)}")
    if args.check:
        print(f"apply: {len(changes)} files would change")
        return 1
    write(changes)
    print(f"apply: {len(changes)} files written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
