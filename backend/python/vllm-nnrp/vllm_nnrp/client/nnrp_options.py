# SPDX-License-Identifier: MIT
"""A URL as the options of the SDK's client."""

from __future__ import annotations

from nnrp.client import NativeClientOptions, NativeClientProviderRoute
from nnrp.core import TransportPolicy
from nnrp.native import NativeTransportClientSecurity

from vllm_nnrp.addresses import NetworkUrl
from vllm_nnrp.client.transport import NnrpTarget

_TRANSPORTS = {"nnrp": "tcp", "nnrps": "tcp", "ws": "websocket", "wss": "websocket", "quic": "quic"}
APPLICATION_PATH = "/chat"  # the protocol wants one; a listener of ours ignores it


def client_options(target: NnrpTarget) -> NativeClientOptions:
    """The one transport that the URL names, never another one."""
    url = target.url
    if not isinstance(url, NetworkUrl):
        return _options("nnrp://localhost", "ipc", NativeClientProviderRoute(f"unix://{url.path}"))
    security = None if target.trust is None else NativeTransportClientSecurity(url.address.host, target.trust)
    application = f"{'nnrps' if url.is_encrypted else 'nnrp'}://{url.address}"
    provider = str(url) if url.scheme == "quic" else None
    if url.is_websocket:
        provider = f"{url.scheme}://{url.address}{url.path or '/'}"  # it wants a path
    return _options(application, _TRANSPORTS[url.scheme], NativeClientProviderRoute(provider, security))


def _options(application: str, transport: str, route: NativeClientProviderRoute) -> NativeClientOptions:
    policy = TransportPolicy[f"FORCE_{transport.upper()}"]
    return NativeClientOptions(application + APPLICATION_PATH, {transport: route}, policy)
