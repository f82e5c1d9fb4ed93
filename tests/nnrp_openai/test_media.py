# SPDX-License-Identifier: MIT
"""Media for a model of text: which content parts are refused, and how they are named."""

from __future__ import annotations

from typing import Any

import pytest

from chatdelta import UnsupportedOperation
from nnrp_openai.media import MEDIA_PARTS, refuse_media

TEXT = {"type": "text", "text": "hi"}


def body(*contents: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content} for content in contents]}


@pytest.mark.parametrize("kind", sorted(MEDIA_PARTS))
def test_a_media_part_is_refused_by_its_place_and_kind(kind: str) -> None:
    with pytest.raises(UnsupportedOperation) as caught:
        refuse_media(body("hi", [TEXT, {"type": kind}]))
    assert caught.value.param == "messages.1.content.1"
    assert str(caught.value) == f"messages.1.content.1: the loaded model takes text only, no {kind}"


TAKEN: dict[str, dict[str, Any]] = {
    "text": body("hi"),
    "text parts": body([TEXT, {"type": "input_text", "text": "a"}, {"type": "refusal", "refusal": "no"}]),
    "no content": {"messages": [{"role": "assistant"}, {"role": "assistant", "content": None}]},
    "what the engine refuses": {"messages": [1, "x", {"content": [3, None, {"type": ["image_url"]}, {}]}]},
}


@pytest.mark.parametrize("given", TAKEN.values(), ids=TAKEN.keys())
def test_everything_else_is_left_to_the_engine(given: dict[str, Any]) -> None:
    refuse_media(given)
