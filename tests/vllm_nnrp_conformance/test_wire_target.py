# SPDX-License-Identifier: MIT
"""The target of the wire suite: its documents are true, and every published case that they select passes."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from nnrp.runtime import ResultDropReasonCode

from nnrp_openai.capabilities import control_capabilities
from nnrp_openai.endings import ENDINGS
from nnrp_wire.carrier import EndReason
from tests.support.process import environment
from tests.support.sdk_client import SdkClient
from tests.support.waiting import until
from tests.vllm_nnrp_conformance.wire_cases import SCENARIOS, Json, run
from vllm_nnrp.conformance.self_signed import self_signed
from vllm_nnrp.conformance.target import (
    PROFILE_CASE,
    REFERENCE_MODEL,
    ready_report,
    target_info,
    target_manifest,
    wire_target,
)
from vllm_nnrp.conformance.wire_models import Ready, TargetManifest

pytestmark = pytest.mark.asyncio
BY_ID = {scenario["id"]: scenario for scenario in SCENARIOS}
START_S = 60.0  # two busy cores


@dataclass(frozen=True)
class Target:
    """A running target: its manifest as the suite reads it, and the folder that paths in it start from."""

    manifest: Json
    folder: Path

    def endpoint(self, transport: str) -> Json:
        (endpoint,) = (each for each in self.manifest["wire_conformance"]["transports"] if each["name"] == transport)
        return dict(endpoint)


@asynccontextmanager
async def target(folder: Path) -> AsyncIterator[Target]:
    certificate = self_signed(folder / "certs")
    async with wire_target(certificate) as urls:
        yield Target(target_manifest(urls, certificate, folder).to_json(), folder)


def is_selected(scenario: Json, manifest: Json) -> bool:
    """The published rule: the mode, the transport and every capability are the target's."""
    claims = manifest["wire_conformance"]
    return (
        scenario["mode"] in claims["modes"]
        and scenario["transport"] in {each["name"] for each in claims["transports"]}
        and set(scenario["required_capabilities"]) <= set(claims["capabilities"])
    )


async def test_what_is_selected(tmp_path: Path) -> None:
    async with target(tmp_path) as served:
        selected = {name for name, scenario in BY_ID.items() if is_selected(scenario, served.manifest)}
    # capability-route-cache needs control.capability_costs: our door negotiates no costs, and does not say so.
    assert selected == set(BY_ID) - {"wire.control.capability-route-cache.client"}


@pytest.mark.parametrize("name", BY_ID)
async def test_a_published_case(name: str, tmp_path: Path) -> None:
    """The one that is not selected, too: what it asks of the wire holds here."""
    scenario = BY_ID[name]
    async with target(tmp_path) as served:
        done = await run(scenario, served.endpoint(scenario["transport"]), served.folder)
    assert list(done.findings(scenario["expect"])) == []


@pytest.mark.parametrize("transport", ["tcp", "websocket", "ipc", "quic"])
async def test_a_cancel_on_every_transport(transport: str, tmp_path: Path) -> None:
    scenario = BY_ID["wire.control.cancel-abort.client"]
    async with target(tmp_path) as served:
        done = await run(scenario, served.endpoint(transport), served.folder)
    assert list(done.findings(scenario["expect"])) == []


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"traced": False}, "is no part of"),
        ({"code": ResultDropReasonCode.SUPERSEDED}, "the drop reason is not 3"),
    ],
    ids=["no trace", "another code"],
)
async def test_a_broken_ending_fails_its_case(
    change: Json, finding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = ENDINGS[EndReason.CANCELLED]
    assert ending is not None
    broken = {**ENDINGS, EndReason.CANCELLED: replace(ending, **change)}
    monkeypatch.setattr("nnrp_openai.nnrp_server.ENDINGS", broken)
    scenario = BY_ID["wire.control.cancel-abort.client"]
    async with target(tmp_path) as served:
        done = await run(scenario, served.endpoint("tcp"), served.folder)
    assert any(finding in each for each in done.findings(scenario["expect"]))


async def test_the_claims_are_the_doors_own(tmp_path: Path) -> None:
    async with target(tmp_path) as served:
        claims = served.manifest["wire_conformance"]
    assert claims["modes"] == ["suite_as_client"]
    assert set(claims["capabilities"]) == {*control_capabilities(target_info()), PROFILE_CASE}
    assert "host_route_providers" not in claims
    assert {(each["name"], each["tls"]) for each in claims["transports"]} == {
        ("tcp", False),
        ("quic", True),
        ("websocket", False),
        ("ipc", False),
    }


async def test_the_ready_report_names_every_listener(tmp_path: Path) -> None:
    async with wire_target(self_signed(tmp_path / "certs")) as urls:
        report = ready_report(urls, "s").to_json()
    listeners = {each["transport"]: each["bound_endpoint"] for each in report["listeners"]}
    assert {name: where.partition("://")[0] for name, where in listeners.items()} == {
        "tcp": "tcp",
        "quic": "quic",
        "websocket": "ws",
        "ipc": "unix",
    }
    assert all(not where.endswith(":0") for where in listeners.values())


# The command


async def test_the_command(tmp_path: Path) -> None:
    """Manifest first, then the ready file; a profile request is answered; SIGTERM ends it and leaves no socket."""
    manifest, ready = tmp_path / "target.json", tmp_path / "ready.json"
    arguments = ("serve-wire-target", "--manifest", str(manifest), "--ready-output", str(ready), "--scenario-id", "s")
    command = (sys.executable, "-P", "-m", "vllm_nnrp", *arguments)
    process = await asyncio.create_subprocess_exec(*command, env=environment({}), stdout=asyncio.subprocess.PIPE)
    try:
        await until(ready.exists, timeout_s=START_S)
        said = TargetManifest.model_validate_json(manifest.read_bytes())
        where = {
            each.transport: each.bound_endpoint for each in Ready.model_validate_json(ready.read_bytes()).listeners
        }
        port = int(where["tcp"].rpartition(":")[2])
        assert said.wire_conformance.transports[0].endpoint == f"127.0.0.1:{port}"
        assert await asyncio.to_thread(_ask, port) == ["response.output_text.delta", "response.completed"]
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = await asyncio.wait_for(process.communicate(), START_S)
    assert process.returncode == 0
    assert out.decode().startswith("ready nnrp://127.0.0.1:")
    assert not await asyncio.to_thread(Path(where["ipc"].removeprefix("unix://")).exists)


def _ask(port: int) -> list[str]:
    """What the published case of the profile itself sends."""
    body = {"model": REFERENCE_MODEL, "messages": [{"role": "user", "content": "ping"}], "stream": True}
    envelope = {"schema_version": "openai-compatible/1", "operation": "chat.completions.create", "body": body}
    with SdkClient.connect(port) as client:
        session = client.open_session()
        events = session.collect(session.submit(json.dumps(envelope).encode()))
    return [json.loads(event.payload)["type"] for event in events]
