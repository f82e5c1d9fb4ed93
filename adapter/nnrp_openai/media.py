# SPDX-License-Identifier: MIT
"""Media in messages for a model of text: refused by the part's own name, before the engine looks at the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chatdelta import UnsupportedOperation

MEDIA_PARTS = frozenset(
    {
        "audio_embeds",
        "audio_url",
        "image_embeds",
        "image_pil",
        "image_url",
        "input_audio",
        "input_image",
        "input_video",
        "video_url",
    }
)


def refuse_media(body: Mapping[str, Any]) -> None:
    """Raise UnsupportedOperation naming the first part that is no text."""
    for where, kind in _parts(body):
        if isinstance(kind, str) and kind in MEDIA_PARTS:
            raise UnsupportedOperation(f"{where}: the loaded model takes text only, no {kind}", param=where)


def _parts(body: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """(where, type) of every content part; what is no message or no part is left to the engine's own checks."""
    for index, message in enumerate(body["messages"]):
        content = message.get("content") if isinstance(message, dict) else None
        for position, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict):
                yield f"messages.{index}.content.{position}", part.get("type")
