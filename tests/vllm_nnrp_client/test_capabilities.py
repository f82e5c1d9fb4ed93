# SPDX-License-Identifier: MIT
"""`vllm-nnrp capabilities`: asked of a running server over the wire, shown as tables or as JSON."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from nnrp.core import PayloadKind
from nnrp.core.packet import build_typed_payload_frame, pack_body, pack_typed_payload_frames
from nnrp.schema import StreamSemantics
from rich.console import Console

from chatdelta.testing import SCRIPTED_INFO
from nnrp_openai import capability_document
from tests.support import certificates
from tests.vllm_nnrp_client.both_doors import both_doors
from tests.vllm_nnrp_client.test_nnrp_transports import on_every_transport
from vllm_nnrp.cli import main
from vllm_nnrp.client import nnrp_client
from vllm_nnrp.client.capabilities import CapabilityDocument, tables
from vllm_nnrp.client.events import Error
from vllm_nnrp.client.nnrp_events import BAD_FRAME, decode_document

Output = pytest.CaptureFixture[str]

OPERATION = {
    "name": "chat.completions.create",
    "streaming": True,
    "non_streaming": True,
    "tool_calls": False,
    "cancellation": True,
}
DOCUMENT: dict[str, Any] = {
    "profile": "openai-compatible",
    "schema_version": "openai-compatible/1",
    "compatibility_levels": [1],
    "operations": [OPERATION],
    "models": [{"id": "a", "owned_by": "vllm"}, {"id": "b", "owned_by": "\x1b[31mme"}],
    "extensions": [{"name": "x.y", "critical": True, "description": "[b]What it means."}],
}
SHOWN = """\
openai-compatible/1, profile openai-compatible, level 1

operation                streaming  whole  tool calls  cancellation
chat.completions.create  yes        yes    no          yes

model  owned by
a      vllm
b      ␛[31mme

extension  critical  meaning
x.y        yes       [b]What it means.
"""


async def run(*arguments: str) -> int:
    return await asyncio.to_thread(main, ["capabilities", *arguments])


@pytest.mark.asyncio
async def test_the_document_comes_on_every_transport(tmp_path: Path, capsys: Output) -> None:
    trust = tmp_path / "root"
    trust.write_bytes(certificates.authority().pem)
    async with on_every_transport(tmp_path) as (_, urls):
        for scheme, url in urls.items():
            assert await run("--json", "--trust", str(trust), "--target", str(url)) == 0, scheme
            out, err = capsys.readouterr()
            assert json.loads(out) == capability_document(SCRIPTED_INFO)
            assert err == ""


@pytest.mark.asyncio
async def test_tables_of_a_running_server(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    async with both_doors() as doors:
        assert await run("--target", str(doors.urls[0])) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:7] == [
        "openai-compatible/1, profile openai-compatible, level 1",
        "",
        "operation                streaming  whole  tool calls  cancellation",
        "chat.completions.create  yes        yes    yes         yes",
        "",
        "model     owned by",
        "scripted  vllm",
    ]
    assert any(line.startswith("control.trace_context") for line in lines)


def shown(document: dict[str, Any]) -> str:
    file = io.StringIO()
    Console(file=file, width=100).print(tables(CapabilityDocument.model_validate(document)))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def test_tables() -> None:
    assert shown(DOCUMENT) == SHOWN
    assert "no model is loaded" in shown({**DOCUMENT, "models": []})


@pytest.mark.asyncio
async def test_a_token_is_asked_for(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    async with both_doors(token="sesame") as doors:
        for token, status in (("", 1), ("wrong", 1), ("sesame", 0)):
            monkeypatch.setenv("VLLM_NNRP_TOKEN", token)
            assert await run("--target", str(doors.urls[0])) == status
            out, err = capsys.readouterr()
            if status == 0:
                assert "scripted" in out
            else:
                complaint = "nnrp.token is missing or wrong: set VLLM_NNRP_TOKEN to the server's token"
                assert (out, err) == ("", f"error invalid_token: {complaint}\n")


COMPLAINTS: dict[str, tuple[str, int, str]] = {
    "nobody there": ("nnrp://127.0.0.1:1", 1, "error: cannot talk NNRP to nnrp://127.0.0.1:1: connection refused\n"),
    "no socket file": ("unix:///no/such", 1, "error: cannot talk NNRP to unix:///no/such: no such file or directory\n"),
    "no URL": ("http://x", 2, "vllm-nnrp: 'http://x' is no NNRP address"),
    "no certificate": ("nnrps://h", 2, "needs --trust (or VLLM_NNRP_TRUST)"),
}


@pytest.mark.parametrize(("url", "status", "complaint"), COMPLAINTS.values(), ids=COMPLAINTS.keys())
def test_what_is_wrong_is_said_in_words(url: str, status: int, complaint: str, capsys: Output) -> None:
    assert main(["capabilities", "--target", url]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err


def test_a_silent_server_is_given_up(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nnrp_client, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:  # connections wait in its queue for ever
        assert main(["capabilities", "--target", f"nnrp://127.0.0.1:{server.getsockname()[1]}"]) == 1
    assert "no answer within" in capsys.readouterr().err


def result(text: bytes) -> tuple[bytes, int]:
    """The body and the payload kinds of a RESULT_PUSH."""
    frame = build_typed_payload_frame(
        PayloadKind.STRUCTURED_EVENT, text, profile_id=0, schema_id=0, schema_version=0,
        stream_semantics=StreamSemantics.SNAPSHOT,
    )  # fmt: skip
    descriptors, payloads = pack_typed_payload_frames([frame])
    body = pack_body(typed_payload_descriptor_region=descriptors, typed_payload_frame_region=payloads)
    return body, int(PayloadKind.STRUCTURED_EVENT)


REFUSED = {"type": "response.error", "error": {"type": "t", "code": "unsupported_operation", "message": "no"}}
ANSWERS: dict[str, tuple[Any, Any]] = {
    "a document": ({"type": "response.completed", "body": {"profile": "p"}}, {"profile": "p"}),
    "an error": (REFUSED, Error("unsupported_operation", "no")),
    "no object": ({"type": "response.completed", "body": []}, BAD_FRAME),
    "no body": ({"type": "response.completed"}, BAD_FRAME),
    "another event": ({"type": "response.usage"}, BAD_FRAME),
    "a list": ([], BAD_FRAME),
}


@pytest.mark.parametrize(("event", "expected"), ANSWERS.values(), ids=ANSWERS.keys())
def test_what_a_server_answers(event: Any, expected: Any) -> None:
    answer = decode_document(*result(json.dumps(event).encode()))
    assert (answer.code if expected == BAD_FRAME and isinstance(answer, Error) else answer) == expected


def test_what_is_no_answer_at_all() -> None:
    for body, kinds in ((b"", 0), (b"garbage", 16), result(b"no JSON")):
        answer = decode_document(body, kinds)
        assert isinstance(answer, Error)
        assert answer.code == BAD_FRAME
