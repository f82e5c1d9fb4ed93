# SPDX-License-Identifier: MIT
"""The parts of vllm_engine that need no vLLM: versions, texts for peers."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from chatdelta import BackendFailure
from vllm_engine.args import unknown_name
from vllm_engine.bindings import select_binding
from vllm_engine.errors import for_peer, most_telling
from vllm_engine.installation import Installation
from vllm_engine.sampling import output_budget


@pytest.mark.parametrize("version", ["0.14.1", "0.20.0", "0.27.0", "1.0.0"])
def test_another_vllm_is_refused_by_name(version: str) -> None:
    with pytest.raises(BackendFailure, match=rf"{version}.*0\.18\.1, 0\.22\.1, 0\.26\.0"):
        select_binding(Installation("vllm", version, is_cpu=False))


@pytest.mark.parametrize(
    ("message", "told"),
    [
        pytest.param("cannot open /srv/models/x/config.json now", "cannot open <path> now", id="a path"),
        pytest.param("0x7f33aa10 failed", "<address> failed", id="an address"),
        pytest.param("cannot open <_io.BytesIO object at 0x7f33aa10>", "cannot open", id="an object"),
        pytest.param("<PIL.Image mode=RGB at 0x7f33aa10> failed", "failed", id="an object with fields"),
        pytest.param("two\n  lines", "two lines", id="one line"),
        pytest.param("the tag </think> and 3/4 stay", "the tag </think> and 3/4 stay", id="no path"),
        pytest.param("see https://example.org/a/b", "see https://example.org/a/b", id="a URL is no path"),
    ],
)
def test_texts_for_a_peer(message: str, told: str) -> None:
    assert for_peer(message) == told


def test_a_text_for_a_peer_is_bounded() -> None:
    assert len(for_peer("x" * 10_000)) == 500


class ImagePart(BaseModel):
    type: Literal["image_url"]
    image_url: str


class TextPart(BaseModel):
    type: Literal["text"]
    text: str


@pytest.mark.parametrize(
    ("part", "told"),
    [
        pytest.param(
            {"type": "image_url", "image_url": 5}, ("0.image_url", "Input should be a valid string"), id="meant"
        ),
        pytest.param({"type": "image_url"}, ("0.image_url", "Field required"), id="incomplete"),
        pytest.param({"type": "hologram"}, ("0.type", "not one of the known values"), id="unknown"),
        pytest.param("x" * 10_000, ("0", "must be an object"), id="no object"),
    ],
)
def test_of_a_unions_complaints_the_one_that_was_meant_is_told(part: Any, told: tuple[str, str]) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[TextPart | ImagePart]).validate_python([part])
    assert most_telling(caught.value) == told


@pytest.mark.parametrize(
    ("limits", "budget"),
    [
        pytest.param({"room": 90, "requested": None, "default": None, "override": None}, 90, id="the room"),
        pytest.param({"room": 90, "requested": 20, "default": 5, "override": None}, 20, id="asked for"),
        pytest.param({"room": 90, "requested": None, "default": 5, "override": None}, 5, id="the model's default"),
        pytest.param({"room": 90, "requested": 100, "default": None, "override": None}, 90, id="more than the room"),
        pytest.param({"room": 90, "requested": 20, "default": None, "override": 7}, 7, id="an override"),
    ],
)
def test_the_output_budget(limits: dict[str, int | None], budget: int) -> None:
    room = limits.pop("room")
    assert room is not None
    assert output_budget(room=room, **limits) == budget


def test_an_unknown_name_says_the_closest() -> None:
    said = unknown_name("flag", "enable-prefix-cachin", ["enable_prefix_caching", "seed"])
    assert said == "unknown flag 'enable-prefix-cachin'; did you mean enable_prefix_caching?"
