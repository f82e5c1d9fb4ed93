# SPDX-License-Identifier: MIT
"""The documents a target publishes for wire-level conformance, as their published JSON schemas have them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from vllm_nnrp.conformance.models import Document, Name, Names, Root, unique

PROTOCOL_VERSION = "nnrp-1-preview4"
SUITE_VERSION = "0.1.0"

Mode = Literal["suite_as_client", "suite_as_server", "suite_as_proxy"]
TransportName = Literal["tcp", "quic", "websocket", "ipc"]
Positive = Annotated[int, Field(ge=1)]
HOST_ROUTES = "host.routes"


class TransportSecurity(Document):
    """Paths are relative to the manifest."""

    server_name: Name
    trusted_certificate_der_path: Name
    certificate_der_path: Name
    private_key_pkcs8_der_path: Name


class TransportEndpoint(Document):
    name: TransportName
    endpoint: Name
    tls: bool
    security: TransportSecurity | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.tls != (self.security is not None):
            raise ValueError("security is there with tls, and only then")
        if self.name == "quic" and not self.tls:
            raise ValueError("quic is always encrypted")
        if self.name in ("tcp", "ipc") and self.tls:
            raise ValueError(f"{self.name} is never encrypted here")
        if self.name == "websocket" and not self.endpoint.startswith("wss://" if self.tls else "ws://"):
            raise ValueError("a websocket endpoint is wss:// with tls, else ws://")
        return self


class HostRouteProvider(Document):
    transport: TransportName
    provider_id: Name
    installed: bool
    platforms: Annotated[tuple[Literal["native", "browser"], ...], Field(min_length=1), AfterValidator(unique)]
    security_modes: Annotated[
        tuple[Literal["plain", "tls_server_auth", "mutual_tls", "wss", "browser_host"], ...],
        Field(min_length=1),
        AfterValidator(unique),
    ]


class Limits(Document):
    max_frame_bytes: Positive
    max_in_flight: Positive


class WireConformance(Document):
    modes: Annotated[tuple[Mode, ...], Field(min_length=1), AfterValidator(unique)]
    transports: tuple[TransportEndpoint, ...]
    host_route_providers: Annotated[tuple[HostRouteProvider, ...], AfterValidator(unique)] | None = None
    capabilities: Annotated[Names, Field(min_length=1)]
    limits: Limits

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if bool(self.host_route_providers) != (HOST_ROUTES in self.capabilities):
            raise ValueError(f"host_route_providers come with the capability {HOST_ROUTES}, and only then")
        if not self.transports and not self.host_route_providers:
            raise ValueError("a target has transports or host_route_providers")
        return self


class TargetManifest(Root):
    target_name: Name
    protocol_version: Literal["nnrp-1-preview4"]
    suite_version: Name
    wire_conformance: WireConformance


class ReadyListener(Document):
    transport: TransportName
    provider_id: Name
    bound_endpoint: Name


class Ready(Root):
    """Where every listener of a target is bound."""

    protocol_version: Literal["nnrp-1-preview4"]
    scenario_id: Name
    listeners: Annotated[tuple[ReadyListener, ...], Field(min_length=1)]
