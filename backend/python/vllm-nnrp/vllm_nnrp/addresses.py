# SPDX-License-Identifier: MIT
"""Addresses as values: `HOST:PORT` for gRPC, and the URLs of NNRP."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlsplit

NNRP_PORT = 4433
NNRP_URL = f"nnrp://127.0.0.1:{NNRP_PORT}"
NNRP_FORMS = "nnrp://HOST:PORT, nnrps://, ws://, wss://, quic:// or unix:///PATH"
ENCRYPTED = {"nnrp": False, "nnrps": True, "ws": False, "wss": True, "quic": True}  # by scheme
MAX_SOCKET_PATH_BYTES = 107  # the system's own limit


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


@dataclass(frozen=True, slots=True)
class NetworkUrl:
    """nnrp (tcp), nnrps (tcp with TLS), ws, wss or quic. `path` is for WebSocket clients: listeners serve any."""

    scheme: str
    address: Address
    path: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}{self.path}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.address.is_loopback

    @property
    def is_encrypted(self) -> bool:
        return ENCRYPTED[self.scheme]

    @property
    def is_websocket(self) -> bool:
        return self.scheme in ("ws", "wss")


@dataclass(frozen=True, slots=True)
class SocketUrl:
    """A unix socket. `group`: whose members may connect beside the owner; a client needs none."""

    path: str
    group: str | None = None

    is_local = True
    is_encrypted = False

    def __str__(self) -> str:
        return f"unix://{quote(self.path)}"


NnrpUrl = NetworkUrl | SocketUrl


def parse_address(text: str) -> Address:
    """`HOST:PORT`; an IPv6 host in brackets. Raises AddressError."""
    address, path = _split(text, text, default_port=None)
    if path:
        raise AddressError(f"{text!r} is no address: HOST:PORT is expected")
    return address


def parse_nnrp_url(text: str) -> NnrpUrl:
    """`nnrp://HOST[:PORT]`, likewise nnrps, ws, wss and quic; or `unix:///PATH[?group=NAME]`. Raises AddressError."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "unix":
        return _socket_url(text)
    if not separator or scheme not in ENCRYPTED:
        raise AddressError(f"{text!r} is no NNRP address: {NNRP_FORMS} is expected")
    address, path = _split(rest, text, default_port=NNRP_PORT)
    url = NetworkUrl(scheme, address, path)
    if path and not url.is_websocket:
        raise AddressError(f"{text!r} is no NNRP address: {scheme}:// has no path")
    return url


def parse_nnrp_urls(text: str) -> tuple[NnrpUrl, ...]:
    """Any number of them, separated by commas. Raises AddressError."""
    return tuple(parse_nnrp_url(each.strip()) for each in text.split(","))


def _socket_url(text: str) -> SocketUrl:
    parts = urlsplit(text)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    path, group = unquote(parts.path), options.pop("group", None)
    if parts.netloc or not path.startswith("/") or path.endswith("/") or "\0" in path or options or group == "":
        raise AddressError(f"{text!r} is no NNRP address: unix:///PATH or unix:///PATH?group=NAME is expected")
    if len(path.encode()) > MAX_SOCKET_PATH_BYTES:
        raise AddressError(f"{text!r} is too long: a socket's path has at most {MAX_SOCKET_PATH_BYTES} bytes")
    return SocketUrl(path, group)


def _split(authority: str, shown: str, *, default_port: int | None) -> tuple[Address, str]:
    try:
        parts = urlsplit(f"//{authority}")
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise AddressError(f"{shown!r} is no address: {exc}") from exc
    if port is None:
        port = default_port
    if not host or port is None or parts.query or parts.fragment or "@" in authority:
        raise AddressError(f"{shown!r} is no address: HOST:PORT is expected")
    return Address(host, port), parts.path
