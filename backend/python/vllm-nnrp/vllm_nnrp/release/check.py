# SPDX-License-Identifier: MIT
"""`vllm-nnrp release-check`: is there evidence for everything a release claims, and is it about this very source?

Smoke records say themselves which source they are about. The other results are in forms that have no place for it, so
a file `source` beside them does: `--stamp DIR` writes it, right after they were made (`make evidence`).
"""

from __future__ import annotations

import argparse
import json
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vllm_engine.bindings.families import FAMILIES
from vllm_nnrp.release.records import read_record
from vllm_nnrp.release.source import source_hash

COMPLETE, INCOMPLETE = 0, 1
STAMP = "source"
TESTS = Path("docs/evidence/tests")
CONFORMANCE = Path("docs/evidence/conformance")
BENCHMARKS = Path("docs/benchmarks/latest")
SMOKE = Path("docs/smoke")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing a release needs. `lack`: what is wrong with it, empty for nothing."""

    claim: str
    where: str
    lack: str = ""


class Lacking(Exception):
    """`str()` says what is missing, stale or wrong."""


def main(argv: Sequence[str]) -> int:
    """0: all evidence is there, about this source, and good; 1: something is not."""
    parser = argparse.ArgumentParser(
        prog="vllm-nnrp release-check",
        description="Look, in a checkout, for the evidence that a release needs.",
        allow_abbrev=False,
    )
    parser.add_argument("--root", type=Path, default=Path(), metavar="DIR", help="the checkout (here)")
    parser.add_argument("--stamp", type=Path, metavar="DIR", help="say that the results in DIR are of this source")
    args = parser.parse_args(argv)
    if args.stamp is not None:
        (args.stamp / STAMP).write_text(source_hash() + "\n")
        return COMPLETE
    evidence = list(gather(args.root))
    _show(evidence, Console(highlight=False))
    return COMPLETE if not any(each.lack for each in evidence) else INCOMPLETE


def gather(root: Path) -> Iterator[Evidence]:
    """All of it, good or not."""
    anchors = [family.anchor for family in FAMILIES.values()]
    yield _evidence("Level 1 behaviour: every test passed", root, TESTS, _check_tests)
    yield _evidence("conformance: every mandatory case passed", root, CONFORMANCE, _check_conformance)
    yield _evidence("benchmarks: a baseline is recorded", root, BENCHMARKS, _check_benchmarks)
    for what, anchor in (("lowest", anchors[0]), ("current", anchors[-1])):
        yield _evidence(f"smoke on the {what} vLLM, {anchor}", root, SMOKE / f"cpu-{anchor}.json", _check_smoke)
    yield _evidence("the README says which vLLM, and how to get it", root, Path("README.md"), _check_band)


def _evidence(claim: str, root: Path, where: Path, check: Callable[[Path], None]) -> Evidence:
    try:
        check(root / where)
    except Lacking as exc:
        return Evidence(claim, str(where), str(exc))
    except FileNotFoundError as exc:
        return Evidence(claim, str(where), f"missing: {Path(exc.filename).name}")
    except (OSError, ValueError, KeyError, ElementTree.ParseError) as exc:
        return Evidence(claim, str(where), f"cannot be read: {type(exc).__name__}: {exc}")
    return Evidence(claim, str(where))


def _require_current(source: str) -> None:
    if source != source_hash():
        raise Lacking(f"stale: it is about source {source}, and this is {source_hash()}")


def _check_tests(folder: Path) -> None:
    suites = list(ElementTree.parse(folder / "junit.xml").getroot().iter("testsuite"))
    names = ("tests", "failures", "errors", "skipped")
    count = {name: sum(int(suite.get(name, 0)) for suite in suites) for name in names}
    if not count["tests"] or count["failures"] or count["errors"] or count["skipped"]:
        raise Lacking(", ".join(f"{number} {name}" for name, number in count.items()))
    _require_current((folder / STAMP).read_text().strip())


def _check_conformance(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_bytes())["results"]
    failed = [result["id"] for result in results if result["outcome"] != "passed"]
    if failed or not results:
        raise Lacking(f"{len(failed)} of {len(results)} cases not passed: {', '.join(failed[:5])}")
    _require_current((folder / STAMP).read_text().strip())


def _check_benchmarks(folder: Path) -> None:
    if not json.loads((folder / "raw.json").read_bytes())["records"]:
        raise Lacking("no measurement is in it")
    _require_current((folder / STAMP).read_text().strip())


def _check_smoke(file: Path) -> None:
    record = read_record(file)
    if not record.passed:
        raise Lacking("an exchange was wrong")
    _require_current(record.source)


def _check_band(readme: Path) -> None:
    project = tomllib.loads((readme.parent / "pyproject.toml").read_text())["project"]
    band, *_ = project["optional-dependencies"]["vllm"]
    if band not in readme.read_text():
        raise Lacking(f"{band} is not in it")


def _show(evidence: Sequence[Evidence], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "claim", "evidence"):
        table.add_column(heading, overflow="fold")
    for each in evidence:
        mark = Text("lacking", "bold red") if each.lack else Text("there", "green")
        table.add_row(mark, Text(each.claim), Text(f"{each.where}\n{each.lack}".strip()))
    console.print(table)
    lacking = sum(bool(each.lack) for each in evidence)
    console.print("ready for a release" if not lacking else f"not ready: {lacking} of {len(evidence)} lacking")
