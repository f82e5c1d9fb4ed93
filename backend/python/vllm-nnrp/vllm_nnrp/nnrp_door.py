# SPDX-License-Identifier: MIT
"""The NNRP door: the profile's handler on our carrier's listener, at any number of URLs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from chatserving import EngineHost, RequestRunner
from nnrp_openai import ChatAdapter, ProfileHandler, ProfileLimits
from nnrp_wire import Endpoint, FrameCounts, NetworkEndpoint, NnrpListener, QuicEndpoint, UnixEndpoint, WireLimits
from vllm_nnrp.addresses import Address, NetworkUrl, NnrpUrl, SocketUrl
from vllm_nnrp.nnrp_settings import NnrpSettings

log = logging.getLogger(__name__)


class ListenFailed(Exception):
    """A required listener cannot be opened; `str()` is one line for the user."""


class NnrpDoor:
    """Made by open_nnrp(). Whoever opened it closes it."""

    def __init__(
        self, handler: ProfileHandler, settings: NnrpSettings, changed: Callable[[], None], frames: FrameCounts
    ) -> None:
        self.frames = frames
        self._handler = handler
        self._settings = settings
        self._changed = changed
        self._is_open = False
        self._listener = NnrpListener(handler, WireLimits(), self._opened, frames)

    @property
    def urls(self) -> tuple[NnrpUrl, ...]:
        """Where it listens now, with the real ports."""
        return tuple(_url(endpoint) for endpoint in self._listener.endpoints)

    async def listen(self, urls: Sequence[NnrpUrl], *, required: bool) -> None:
        """Open all of them. Raises ListenFailed if they are `required`; else those that fail are tried again."""
        for url in urls:
            endpoint = self._endpoint(url)
            try:
                await self._listener.listen(endpoint)
            except OSError as exc:
                message = f"cannot listen for NNRP on {url}: {exc.strerror or exc}"
                if required:
                    await self.close(0)
                    raise ListenFailed(message) from exc
                log.error("%s; it is tried again", message)
                self._listener.keep_trying(endpoint)
        self._is_open = True

    def reload(self) -> None:
        """Read the certificate again."""
        if self._settings.certificates is not None:
            self._settings.certificates.reload()

    async def close(self, grace_s: float) -> None:
        """Accept nothing more, let operations end for `grace_s`, abort the rest, close every connection."""
        self._handler.begin_drain()
        await self._listener.drain(grace_s)
        await self._handler.close()

    def _opened(self) -> None:
        if self._is_open:
            self._changed()

    def _endpoint(self, url: NnrpUrl) -> Endpoint:
        if isinstance(url, SocketUrl):
            return UnixEndpoint(url.path, url.group)
        host, port = url.address.host, url.address.port
        certificates = self._settings.certificates
        if not url.is_encrypted:
            return NetworkEndpoint(host, port, url.is_websocket)
        assert certificates is not None, "refuse_unsafe() has seen to it"
        if url.scheme == "quic":
            return QuicEndpoint(host, port, certificates.identity)
        return NetworkEndpoint(host, port, url.is_websocket, certificates.context)


def _url(endpoint: Endpoint) -> NnrpUrl:
    if isinstance(endpoint, UnixEndpoint):
        return SocketUrl(endpoint.path, endpoint.group)
    scheme = {"tcp": "nnrp", "tls": "nnrps"}.get(endpoint.transport, endpoint.transport)
    return NetworkUrl(scheme, Address(endpoint.host, endpoint.port))


async def open_nnrp(
    urls: Sequence[NnrpUrl],
    host: EngineHost,
    runner: RequestRunner,
    settings: NnrpSettings,
    *,
    required: bool,
    max_operations: int,
    changed: Callable[[], None] = lambda: None,
) -> NnrpDoor:
    """Listen on `urls`; `changed` is called when one opens later, or again. Raises ListenFailed."""
    limits, frames = ProfileLimits(max_operations=max_operations), FrameCounts()
    handler = ProfileHandler(ChatAdapter(host, runner), limits=limits, token=settings.token, frames=frames)
    door = NnrpDoor(handler, settings, changed, frames)
    await door.listen(urls, required=required)
    return door
