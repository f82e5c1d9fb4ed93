# SPDX-License-Identifier: MIT
"""Media of a request, loaded by vLLM's own connector: who may be asked for it, and refusals that name the modality.

Registered at vLLM's extension point for connectors. What cannot be loaded is the peer's fault and said so: vLLM raises
a dozen types for it, some of them no ValueError.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any

from vllm.multimodal.media import MEDIA_CONNECTOR_REGISTRY, AudioMediaIO, ImageMediaIO, MediaConnector, VideoMediaIO

from chatdelta import BackendError, InvalidRequest
from vllm_engine.errors import for_peer

log = logging.getLogger(__name__)
CONNECTOR = "vllm_nnrp"  # the value of VLLM_MEDIA_CONNECTOR
ANY_HOST = "*"  # in allowed_media_domains: fetch from everywhere, as vLLM does when the list is empty
MODALITIES = ((ImageMediaIO, "image"), (VideoMediaIO, "video"), (AudioMediaIO, "audio"))
_BASE64_DATA_URL = re.compile(r"(?i:data):[^;,]{0,256};base64,")  # all that vLLM reads


@MEDIA_CONNECTOR_REGISTRY.register(CONNECTOR)
class CheckedMediaConnector(MediaConnector):  # type: ignore[misc]  # vLLM is untyped here
    """Data URLs; addresses only of the hosts in `allowed_media_domains`; files only of `allowed_local_media_path`."""

    def __init__(self, *args: Any, allowed_media_domains: list[str] | None = None, **kwargs: Any) -> None:
        self._hosts = frozenset(allowed_media_domains or ())
        checked_by_vllm = None if ANY_HOST in self._hosts else allowed_media_domains
        super().__init__(*args, allowed_media_domains=checked_by_vllm, **kwargs)

    def load_from_url(self, url: str, media_io: Any, *, fetch_timeout: int | None = None) -> Any:
        with _refusals(media_io):
            self._check(url)
            return super().load_from_url(url, media_io, fetch_timeout=fetch_timeout)

    async def load_from_url_async(self, url: str, media_io: Any, *, fetch_timeout: int | None = None) -> Any:
        """`fetch_timeout` (VLLM_IMAGE_FETCH_TIMEOUT and the like) is for the whole fetch: vLLM's retries would make
        nearly two minutes of five seconds."""
        with _refusals(media_io):
            self._check(url)
            async with asyncio.timeout(fetch_timeout):
                return await super().load_from_url_async(url, media_io, fetch_timeout=fetch_timeout)

    def _check(self, url: str) -> None:
        scheme = url.partition(":")[0].lower()
        if scheme == "data" and not _BASE64_DATA_URL.match(url):
            raise ValueError("a data URL must be data:<media type>;base64,<data>")
        if scheme in ("http", "https") and not self._hosts:
            raise ValueError("addresses are not fetched here (allowed_media_domains is empty): send a data URL")
        if scheme == "file" and self.allowed_local_media_path is None:
            raise ValueError("local files are not served here (allowed_local_media_path is not set)")


@contextlib.contextmanager
def _refusals(media_io: Any) -> Iterator[None]:
    """Whatever goes wrong inside becomes InvalidRequest with the modality's name.

    Only a ValueError's text is passed on: others tell a peer whether a host answers, or where a file lies.
    """
    modality = next((name for kind, name in MODALITIES if isinstance(media_io, kind)), "media")
    try:
        yield
    except BackendError:
        raise
    except Exception as exc:
        log.debug("%s refused", modality, exc_info=True)
        said = str(exc.args[0]) if isinstance(exc, ValueError) and exc.args else "it cannot be fetched or read"
        raise InvalidRequest(for_peer(f"{modality}: {said}"), param=modality) from exc
