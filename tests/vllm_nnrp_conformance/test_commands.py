# SPDX-License-Identifier: MIT
"""`vllm-nnrp conformance` as a user has it: what it writes, what it shows, and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from chatdelta import Engine
from chatdelta.testing import ScriptedEngine
from tests.vllm_nnrp_conformance.documents import RECIPE, SUITE, Json
from tests.vllm_nnrp_conformance.serving import RECIPES, TOKEN, served
from vllm_nnrp.cli import main
from vllm_nnrp.conformance import commands, target
from vllm_nnrp.conformance.engines import TRANSPORTS
from vllm_nnrp.conformance.models import Plan, Results
from vllm_nnrp.conformance.recipes import OWN_RECIPES
from vllm_nnrp.conformance.scripted import script, scripted_info
from vllm_nnrp.processes import descendants

pytestmark = pytest.mark.timeout(180)
Capture = pytest.CaptureFixture[str]


@contextmanager
def server(folder: Path, engine: Engine | None = None) -> Iterator[str]:
    """The door in a thread of its own; its URL."""
    loop = asyncio.new_event_loop()
    context = served("tcp", folder, engine)
    thread = Thread(target=loop.run_forever, name="server")
    thread.start()
    try:
        opened = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(30)
        yield str(opened.url)
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def conformance(*arguments: str, token: str | None = TOKEN) -> int:
    return commands.main(arguments, {} if token is None else {"VLLM_NNRP_TOKEN": token})


def results(file: Path) -> dict[str, Json]:
    return {result.id: result.to_json() for result in Results.model_validate_json(file.read_bytes()).results}


# plan


def test_a_plan_on_stdout(capsys: Capture) -> None:
    assert main(["conformance", "plan", "--param", "MODEL_ID=m", "--results-path", "out/r.json"]) == 0
    plan = Plan.model_validate_json(capsys.readouterr().out)
    assert [case.id for case in plan.cases] == [recipe.id for recipe in RECIPES]
    assert (plan.artifacts.results_path, plan.artifacts.evidence_dir) == ("out/r.json", "out/r-evidence")
    models = {case.id.rpartition(".")[2]: case.request.body.get("model") for case in plan.cases}
    assert (models["usage"], models["backend-error"], models["missing-model"]) == ("m", "backend-error", None)


WRONG: list[tuple[list[str], str]] = [
    (["plan", "--param", "NAME"], "--param NAME: NAME=VALUE is expected"),
    (["plan", "--param", "X=1"], "no recipe has a parameter X"),
    (["plan", "--recipes", "/nowhere"], "/nowhere/manifest.json cannot be read"),
    (["plan", "--output", "/proc/nothing/plan.json"], "/proc/nothing/plan.json cannot be written"),
    (["run", "--target", "nnrp://127.0.0.1:1", "--model", "m"], "--transport, --model and --option are for --engine"),
    (["run", "--target", "nnrp://127.0.0.1:1", "--plan", "p", "--param", "P=1"], "--plan has its parameters already"),
    (["run", "--target", "http://h"], "'http://h' is no NNRP address"),
    (["run", "--target", "nnrp://127.0.0.1:1"], "nnrp://127.0.0.1:1 gives no capability document: cannot talk NNRP"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_cannot_be_used(arguments: list[str], words: str, capsys: Capture) -> None:
    assert conformance(*arguments) == 2
    assert capsys.readouterr().err.startswith(f"vllm-nnrp: {words}")


# run, against a server that is there


def test_a_run_against_a_target(tmp_path: Path, capsys: Capture) -> None:
    """Selected by the target's own document; one evidence file a case, in which no token is."""
    output = tmp_path / "out" / "results.json"
    with server(tmp_path) as url:
        assert (
            conformance("run", "--target", url, "--output", str(output), "--select", "usage*", "--select", "cancel*")
            == 0
        )
    chosen = ["usage", "cancellation", "usage-continuous", "usage-non-streaming"]
    found = results(output)
    assert [name.removeprefix("openai-compatible.chat.") for name in found] == chosen
    assert {each["outcome"] for each in found.values()} == {"passed"}
    evidence = {file.name: file.read_text(encoding="utf-8") for file in (tmp_path / "out/results-evidence").iterdir()}
    assert set(evidence) == {f"openai-compatible.chat.{name}.jsonl" for name in chosen}
    assert not [name for name, text in evidence.items() if TOKEN in text]
    shown = capsys.readouterr().out
    assert "chat.usage-continuous" in shown
    assert "4 passed" in shown


def test_the_evidence_is_what_went_over_the_wire(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    with server(tmp_path) as url:
        conformance("run", "--target", url, "--output", str(output), "--select", "cancellation")
    (file,) = (tmp_path / "results-evidence").iterdir()
    lines: list[Json] = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert all(line.keys() == {"direction", "frame", "payload", "timestamp_us"} for line in lines)
    assert [line["frame"] for line in lines if line["direction"] == "sent"] == ["FRAME_SUBMIT", "CANCEL"]
    envelope = lines[0]["payload"]["envelope"]
    assert envelope["nnrp"] == {"token": "***"}, "the instruction to the runner is in no envelope"
    received = [line for line in lines if line["direction"] == "received"]
    assert [line["frame"] for line in received][-2:] == ["TRACE_CONTEXT", "RESULT_DROP_REASON"]
    events = [line["payload"]["event"] for line in received if "event" in line["payload"]]
    assert events == results(output)["openai-compatible.chat.cancellation"]["events"]
    assert [line["timestamp_us"] for line in lines] == sorted(line["timestamp_us"] for line in lines)


def test_a_target_without_a_capability_document(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be run when the user says what it claims and serves."""
    monkeypatch.setattr("nnrp_openai.envelope.CAPABILITIES_GET", "no such operation")
    known = ("--manifest", str(OWN_RECIPES / "capabilities.json"), "--param", "MODEL_ID=scripted")
    arguments = ("--output", str(tmp_path / "results.json"), "--select", "usage", "--select", "backend-error")
    with server(tmp_path) as url:
        assert conformance("run", "--target", url, *arguments) == 2
        assert conformance("run", "--target", url, *arguments, *known) == 0
    said = capsys.readouterr()
    assert "gives no capability document: operation capabilities.get is not supported" in said.err
    assert "2 passed" in said.out


def test_a_model_that_the_target_does_not_serve(tmp_path: Path, capsys: Capture) -> None:
    """A mandatory case that cannot be run is no success."""
    output = tmp_path / "results.json"
    with server(tmp_path, ScriptedEngine(script, info=scripted_info(["scripted"]))) as url:
        assert conformance("run", "--target", url, "--output", str(output), "--select", "backend-error") == 1
        assert conformance("run", "--target", url, "--output", str(output), "--select", "!backend-error*") == 0
    assert (
        "skipped openai-compatible.chat.backend-error: the target serves no model backend-error"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("status", ["mandatory", "optional"])
def test_a_case_that_fails(status: str, tmp_path: Path, capsys: Capture) -> None:
    recipe: dict[str, Any] = RECIPE | {"status": status, "required_capabilities": ["api.level1"]}
    recipe["parameters"] = {"MODEL_ID": "example-model"}
    recipe["request"] = {"body": {"model": "${MODEL_ID}", "messages": [{"role": "user", "content": "Say hello."}]}}
    recipe["expect"] = {"events": [], "terminal": "error"}
    (tmp_path / "manifest.json").write_text(json.dumps(SUITE))
    (tmp_path / "a.json").write_text(json.dumps(recipe))
    output = tmp_path / "results.json"
    with server(tmp_path) as url:
        assert conformance("run", "--target", url, "--recipes", str(tmp_path), "--output", str(output)) == 1
    result = results(output)["a.case"]
    assert (result["outcome"], result["terminal"]) == ("failed", "success")
    assert result["message"].startswith("the terminal is success, not error; ")
    assert "failed a.case: the terminal is success, not error" in capsys.readouterr().out


def test_without_its_token_a_target_says_nothing(tmp_path: Path, capsys: Capture) -> None:
    with server(tmp_path) as url:
        assert conformance("run", "--target", url, token=None) == 2
    assert "gives no capability document: nnrp.token is missing or wrong" in capsys.readouterr().err


# run, against an engine of its own


@pytest.mark.parametrize("transport", ["tcp", "quic", "tls"])
def test_a_run_with_an_engine_of_its_own(transport: str, tmp_path: Path, capfd: Capture) -> None:
    """By a plan, or by the published claims; in a child that is gone afterwards."""
    plan, output, before = tmp_path / "plan.json", tmp_path / "results.json", descendants(os.getpid())
    select = ["--select", "streaming-text", "--select", "backend-error", "--select", "token-refused"]
    if transport == "tcp":
        assert conformance("plan", "--param", "MODEL_ID=scripted", "--output", str(plan)) == 0
        select += ["--plan", str(plan)]
    arguments = ("--engine", "scripted", "--transport", transport, "--output", str(output), *select)
    assert conformance("run", *arguments, "--evidence-dir", str(tmp_path / "evidence")) == 0
    assert {each["diagnostics"]["transport"] for each in results(output).values()} == {
        TRANSPORTS[transport].partition(":")[0]
    }
    assert descendants(os.getpid()) == before
    assert len(list((tmp_path / "evidence").iterdir())) == 3
    assert "3 passed" in capfd.readouterr().out


def test_an_engine_that_does_not_start(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    ends = "import sys; print('no such engine'); sys.exit(3)"
    monkeypatch.setattr("vllm_nnrp.conformance.engines.child_command", lambda _kind: (sys.executable, "-c", ends))
    assert conformance("run", "--engine", "scripted") == 1
    said = capsys.readouterr().err
    assert "the backend ended with exit code 3 before it was ready" in said
    assert "no such engine" in said


def test_a_wire_target_that_cannot_write(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").touch()
    assert target.main(["--manifest", str(tmp_path / "file" / "target.json")]) == 1
    assert "Not a directory" in capsys.readouterr().err


def test_help_names_the_commands(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "conformance" in shown
    assert "serve-wire-target" in shown
