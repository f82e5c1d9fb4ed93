# SPDX-License-Identifier: MIT
"""The vision model's folder: small, read whole by transformers, and its processor counts as the model does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_nnrp.models.building import one_thread, quiet_transformers
from vllm_nnrp.models.progress import no_progress
from vllm_nnrp.models.vision import IMAGE_SIZE, IMAGE_TOKEN, TOKENS_PER_IMAGE, VOCABULARY_SIZE, build_vision_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
MAX_BYTES = 3_000_000


@pytest.fixture(scope="module")
def folder() -> Path:
    return build_vision_model(no_progress)


@pytest.fixture(scope="module")
def processor(folder: Path) -> Any:
    from transformers import AutoProcessor

    with quiet_transformers():
        return AutoProcessor.from_pretrained(folder)


def test_it_is_small(folder: Path) -> None:
    assert sum(file.stat().st_size for file in folder.iterdir()) < MAX_BYTES


def test_transformers_finds_every_weight(folder: Path) -> None:
    from transformers import AutoModelForImageTextToText

    with quiet_transformers(), one_thread():
        _, info = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def test_the_template_puts_an_image_where_it_stands(processor: Any) -> None:
    from PIL import Image

    image = Image.new("RGB", (2 * IMAGE_SIZE, IMAGE_SIZE))
    content = [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "\nÜ"}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    assert text == f"<|im_start|>user\nLook: {IMAGE_TOKEN}\nÜ<|im_end|>\n<|im_start|>assistant\n"
    with one_thread():
        inputs = processor(text=text, images=[image], return_tensors="pt")
    (token_ids,) = inputs["input_ids"].tolist()
    assert token_ids.count(processor.tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)) == TOKENS_PER_IMAGE
    assert tuple(inputs["pixel_values"].shape) == (1, 3, IMAGE_SIZE, IMAGE_SIZE)


def test_every_byte_is_a_token(processor: Any) -> None:
    assert len(processor.tokenizer) == VOCABULARY_SIZE
    text = "é 東京 👋🏽"
    token_ids = processor.tokenizer.encode(text)
    assert len(token_ids) == len(text.encode())
    assert processor.tokenizer.decode(token_ids) == text
