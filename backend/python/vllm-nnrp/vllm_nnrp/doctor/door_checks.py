# SPDX-License-Identifier: MIT
"""The two doors: what they are built on, where they would listen, and how they are protected."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata

from vllm_nnrp.addresses import Address, NetworkUrl, NnrpUrl
from vllm_nnrp.doctor.findings import Finding, note, ok, problem
from vllm_nnrp.settings import Settings, SettingsError

PACKAGES = {  # what each is for
    "nnrp-py": "NNRP",
    "grpcio": "gRPC",
    "websockets": "ws, wss",
    "aioquic": "quic",
    "prometheus-client": "--metrics-port",
}
OPTIONAL = {"prometheus-client": "pip install 'vllm-nnrp[prometheus]', if metrics are wanted"}


def check_packages() -> Iterator[Finding]:
    for name, purpose in PACKAGES.items():
        try:
            yield ok(name, f"{metadata.version(name)} ({purpose})")
        except metadata.PackageNotFoundError:
            missing = f"not installed ({purpose})"
            if name in OPTIONAL:
                yield note(name, missing, OPTIONAL[name])
            else:
                yield problem(name, missing, "pip install vllm-nnrp again")


def check_settings(arguments: Sequence[str], environ: Mapping[str, str]) -> Iterator[Finding]:
    """The settings a backend would start with here, by these arguments."""
    try:
        settings = Settings.load(arguments, environ)
    except SettingsError as exc:
        yield problem("settings", str(exc), "see docs/settings.md, or backend.py --help")
        return
    yield port_finding("gRPC", settings.grpc, socket.SOCK_STREAM)
    yield from _protection("gRPC", (settings.grpc.is_loopback,), settings.grpc_token is not None)
    if settings.metrics is not None:
        yield port_finding("metrics", settings.metrics, socket.SOCK_STREAM)
    if not settings.nnrp.listen:
        yield note("NNRP", "no listener", "--nnrp opens one on the loopback address")
        return
    for url in settings.nnrp.listen:
        yield _listener(url)
    yield from _protection("NNRP", (url.is_local for url in settings.nnrp.listen), settings.nnrp.token is not None)
    if settings.nnrp.certificates is not None:
        asks = ", asks clients for theirs" if settings.nnrp.certificates.asks_clients else ""
        yield ok("NNRP certificate", f"can be used{asks}")


def _listener(url: NnrpUrl) -> Finding:
    if isinstance(url, NetworkUrl):
        return port_finding(f"NNRP {url.scheme}", url.address, _kind(url))
    return ok("NNRP unix", url.path)


def _kind(url: NetworkUrl) -> socket.SocketKind:
    return socket.SOCK_DGRAM if url.scheme == "quic" else socket.SOCK_STREAM


def port_finding(about: str, address: Address, kind: socket.SocketKind) -> Finding:
    """Whether it can be bound now."""
    try:
        places = socket.getaddrinfo(address.host, address.port, type=kind, flags=socket.AI_PASSIVE)
    except OSError as exc:
        return problem(about, f"{address}: {exc.strerror}", "name an address of this machine")
    for family, _, _, _, place in places:
        with socket.socket(family, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(place)
            except OSError as exc:
                return problem(about, f"{address}: {exc.strerror}", "end what listens there, or choose another port")
    return ok(about, f"{address} is free")


def _protection(door: str, local: Sequence[bool] | Iterator[bool], has_token: bool) -> Iterator[Finding]:
    if has_token:
        yield ok(f"{door} token", "set")
    elif all(local):
        yield ok(f"{door} token", "none; only this machine can connect")
    else:
        yield note(f"{door} token", "none, and other machines can connect", "set one: see docs/settings.md")
