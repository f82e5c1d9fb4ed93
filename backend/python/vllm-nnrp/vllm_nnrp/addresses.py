# SPDX-License-Identifier: MIT
"""Listen addresses as values: `HOST:PORT` for gRPC, `nnrp://HOST[:PORT]` for NNRP."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

NNRP_PORT = 4433
NNRP_URL = f"nnrp://127.0.0.1:{NNRP_PORT}"


class AddressError(ValueError):
    """The text is no address; `str()` says why in one line."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host (name, IPv4, or IPv6 without brackets) and a port; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than localhost is taken for reachable."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """`HOST:PORT`; an IPv6 host in brackets. Raises AddressError."""
    return _split(text, text, default_port=None)


def parse_nnrp_url(text: str) -> Address:
    """`nnrp://HOST[:PORT]`. Raises AddressError."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme != "nnrp":
        raise AddressError(f"{text!r} is no NNRP address: nnrp://HOST:PORT is expected")
    return _split(rest, text, default_port=NNRP_PORT)


def _split(authority: str, shown: str, *, default_port: int | None) -> Address:
    try:
        parts = urlsplit(f"//{authority}")
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise AddressError(f"{shown!r} is no address: {exc}") from exc
    if port is None:
        port = default_port
    if not host or port is None or parts.path or parts.query or parts.fragment or "@" in authority:
        raise AddressError(f"{shown!r} is no address: HOST:PORT is expected")
    return Address(host, port)
