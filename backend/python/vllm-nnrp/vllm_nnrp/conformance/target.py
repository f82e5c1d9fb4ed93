# SPDX-License-Identifier: MIT
"""`vllm-nnrp serve-wire-target`: our NNRP door on every transport, for the published wire suite to drive."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from chatdelta import Engine, EngineInfo, GenerationRequest
from chatdelta.testing import Gap, ScriptedEngine, Step, text_script
from chatserving import EngineHost, RequestRunner
from nnrp_openai import ChatAdapter
from nnrp_openai.capabilities import control_capabilities
from nnrp_wire import FrameCounts, WireLimits
from vllm_nnrp.addresses import Address, NetworkUrl, NnrpUrl, SocketUrl
from vllm_nnrp.certificates import CertificateFiles, Certificates
from vllm_nnrp.conformance.evidence import write_atomically
from vllm_nnrp.conformance.faults import FaultEngine
from vllm_nnrp.conformance.models import SCHEMAS
from vllm_nnrp.conformance.opaque_work import WORK_MODEL, WireTargetHandler
from vllm_nnrp.conformance.recipes import ConformanceError
from vllm_nnrp.conformance.scripted import MODEL, script, scripted_info
from vllm_nnrp.conformance.self_signed import SERVER_NAME, SelfSigned, self_signed
from vllm_nnrp.conformance.wire_models import (
    PROTOCOL_VERSION,
    SUITE_VERSION,
    Limits,
    Mode,
    Ready,
    ReadyListener,
    TargetManifest,
    TransportEndpoint,
    TransportName,
    TransportSecurity,
    WireConformance,
)
from vllm_nnrp.nnrp_door import ListenFailed, NnrpDoor
from vllm_nnrp.nnrp_settings import NnrpSettings

TARGET_NAME = "vllm-nnrp"
SCENARIO = "vllm-nnrp.serve-wire-target"
MODES: tuple[Mode, ...] = ("suite_as_client",)
PROFILE_CASE = "profile.openai-compatible.level1.wire"  # the suite's token for its case of the profile itself
REFERENCE_MODEL = "reference-model"  # whom that case asks
WORK_S = 0.5  # of an opaque piece of work: a CANCEL sent right after its submit comes in time
CERTIFICATES = "certs"  # beside the manifest
OK, FAILED = 0, 1

_NAMES: dict[str, TransportName] = {"nnrp": "tcp", "quic": "quic", "ws": "websocket"}


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="vllm-nnrp serve-wire-target",
        description="Serve a scripted engine on tcp, quic, websocket and ipc; files of the suite's form say where.",
        allow_abbrev=False,
    )
    parser.add_argument("--manifest", type=Path, required=True, metavar="FILE", help="the target manifest to write")
    parser.add_argument("--ready-output", type=Path, metavar="FILE", help="the readiness report to write, after it")
    parser.add_argument("--scenario-id", default=SCENARIO, metavar="ID", help="named in it (%(default)s)")
    args = parser.parse_args(list(argv))
    try:
        asyncio.run(_serve(args.manifest.absolute(), args.ready_output, args.scenario_id))
    except (ConformanceError, ListenFailed, OSError) as exc:
        print(f"vllm-nnrp: {exc}", file=sys.stderr)
        return FAILED
    return OK


async def _serve(manifest: Path, ready: Path | None, scenario_id: str) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    folder = manifest.parent
    certificate = await asyncio.to_thread(self_signed, folder / CERTIFICATES)
    async with wire_target(certificate) as urls:
        write_atomically(manifest, target_manifest(urls, certificate, folder).to_json())
        if ready is not None:
            write_atomically(ready, ready_report(urls, scenario_id).to_json())
        print("ready", *(str(url) for url in urls), flush=True)
        await ended.wait()


@asynccontextmanager
async def wire_target(certificate: SelfSigned) -> AsyncIterator[tuple[NnrpUrl, ...]]:
    """The target on one free port a transport, and where each is. Raises ListenFailed."""
    host = EngineHost(drain_s=0)

    async def engine() -> Engine:
        return FaultEngine(ScriptedEngine(_script, info=target_info()))

    await host.load(MODEL, engine)
    frames = FrameCounts()
    handler = WireTargetHandler(ChatAdapter(host, RequestRunner(host)), frames=frames)
    files = CertificateFiles(certificate.certificate, certificate.key)
    with tempfile.TemporaryDirectory(prefix="vllm-nnrp-wire-") as folder:
        loopback = (NetworkUrl(scheme, Address("127.0.0.1", 0)) for scheme in _NAMES)
        door = NnrpDoor(handler, NnrpSettings(certificates=Certificates(files)), lambda: None, frames)
        try:
            await door.listen((*loopback, SocketUrl(os.path.join(folder, "nnrp.sock"))), required=True)
            yield door.urls
        finally:
            await host.close()
            await door.close(0)


def target_info() -> EngineInfo:
    return scripted_info((MODEL, REFERENCE_MODEL, WORK_MODEL))


def _script(request: GenerationRequest) -> Iterable[Step]:
    match request.body.get("model"):
        case str(model) if model == WORK_MODEL:
            return (Gap(WORK_S), *text_script("done"))
        case str(model) if model == REFERENCE_MODEL:
            return text_script("pong")
    return script(request)


def target_manifest(urls: Iterable[NnrpUrl], certificate: SelfSigned, folder: Path) -> TargetManifest:
    """Claims what is true: suite_as_client and the door's control capabilities; `host.routes` not (decision 9)."""
    return TargetManifest.model_validate(
        {
            "$schema": f"{SCHEMAS}/wire-conformance-target.schema.json",
            "target_name": TARGET_NAME,
            "protocol_version": PROTOCOL_VERSION,
            "suite_version": SUITE_VERSION,
            "wire_conformance": WireConformance(
                modes=MODES,
                transports=tuple(_endpoint(url, certificate, folder) for url in urls),
                capabilities=(*sorted(control_capabilities(target_info())), PROFILE_CASE),
                limits=Limits(
                    max_frame_bytes=WireLimits().max_packet_bytes,
                    max_in_flight=WireLimits().max_in_flight,
                ),
            ),
        }
    )


def ready_report(urls: Iterable[NnrpUrl], scenario_id: str) -> Ready:
    return Ready.model_validate(
        {
            "$schema": f"{SCHEMAS}/wire-host-route-ready.schema.json",
            "protocol_version": PROTOCOL_VERSION,
            "scenario_id": scenario_id,
            "listeners": tuple(_listener(url) for url in urls),
        }
    )


def _listener(url: NnrpUrl) -> ReadyListener:
    name = _name(url)
    bound = f"tcp://{url.address}" if isinstance(url, NetworkUrl) and name == "tcp" else str(url)
    return ReadyListener(transport=name, provider_id=f"vllm-nnrp.{name}", bound_endpoint=bound)


def _endpoint(url: NnrpUrl, certificate: SelfSigned, folder: Path) -> TransportEndpoint:
    """tcp and quic are host and port in the suite's form, the others URLs."""
    name = _name(url)
    security = None
    if url.is_encrypted:
        shown, key = (os.path.relpath(file, folder) for file in (certificate.certificate, certificate.key))
        security = TransportSecurity(
            server_name=SERVER_NAME,
            trusted_certificate_der_path=shown,
            certificate_der_path=shown,
            private_key_pkcs8_der_path=key,
        )
    where = str(url)
    if isinstance(url, NetworkUrl):
        where = f"{url}/nnrp" if url.is_websocket else str(url.address)
    return TransportEndpoint(name=name, endpoint=where, tls=url.is_encrypted, security=security)


def _name(url: NnrpUrl) -> TransportName:
    return _NAMES[url.scheme] if isinstance(url, NetworkUrl) else "ipc"
