# SPDX-License-Identifier: MIT
"""Images, Videos and Audios of PredictOptions, as content parts of the last user message.

Core sends them as bare base64 beside messages that are flattened to text: where they stood is lost, so they come before
the text, in order. vLLM's renderer puts the model's placeholders in and opens them; here they only have to be base64.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from chatdelta import InvalidRequest, UnsupportedOperation
from localai_proto import backend_pb2 as pb

# field: (part type, media type where the first bytes say nothing)
FIELDS = {
    "Images": ("image_url", "image/png"),
    "Videos": ("video_url", "video/mp4"),
    "Audios": ("audio_url", "audio/wav"),
}
# (offset, first bytes, media type). Of use to vLLM for few of them, and to whoever reads a request.
SIGNATURES = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
)


def given_media(options: pb.PredictOptions) -> list[str]:
    """The names of the media fields that are not empty."""
    return [field for field in FIELDS if getattr(options, field)]


def refuse_media(options: pb.PredictOptions, *, multimodal: bool) -> None:
    """Raise UnsupportedOperation, naming the field, where media cannot be taken at all."""
    for field in given_media(options):
        if not multimodal:
            raise UnsupportedOperation(f"{field}: the loaded model takes text only", param=field)
        if options.Prompt or not options.Messages:
            raise UnsupportedOperation(f"{field}: media goes with Messages, a raw prompt takes none", param=field)


def add_media(messages: list[dict[str, Any]], options: pb.PredictOptions) -> None:
    """Put the media into the last user message. Raises InvalidRequest naming what is broken."""
    parts = [part for field in given_media(options) for part in _parts(field, getattr(options, field))]
    if not parts:
        return
    message = next((message for message in reversed(messages) if message["role"] == "user"), None)
    if message is None:
        field = given_media(options)[0]
        raise InvalidRequest(f"{field}: there is no user message to put it in", code="invalid_body", param=field)
    text = [{"type": "text", "text": message["content"]}] if message["content"] else []
    message["content"] = parts + text


def _parts(field: str, items: Any) -> Iterator[dict[str, Any]]:
    kind, fallback = FIELDS[field]
    for index, item in enumerate(items):
        yield {"type": kind, kind: {"url": _data_url(item, f"{field}[{index}]", fallback)}}


def _data_url(item: str, where: str, fallback: str) -> str:
    """Bare base64, or a data URL as it is. Never an address: this door fetches nothing for a peer."""
    head, comma, payload = item.partition(",") if item.startswith("data:") else ("", "", item)
    if comma and not head.endswith(";base64"):
        raise InvalidRequest(f"{where}: a data URL must be base64", code="invalid_body", param=where)
    content = _decoded(payload, where)
    return item if comma else f"data:{_media_type(content, fallback)};base64,{payload}"


def _decoded(payload: str, where: str) -> bytes:
    try:
        content = base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise InvalidRequest(f"{where} is not valid base64", code="invalid_body", param=where) from exc
    if not content:
        raise InvalidRequest(f"{where} is empty", code="invalid_body", param=where)
    return content


def _media_type(content: bytes, fallback: str) -> str:
    """By the first bytes, within the kind of media that the field says."""
    family = fallback.partition("/")[0]
    for offset, signature, media_type in SIGNATURES:
        if media_type.startswith(family) and content.startswith(signature, offset):
            return media_type
    return fallback
