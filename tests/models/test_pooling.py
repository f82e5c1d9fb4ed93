# SPDX-License-Identifier: MIT
"""The embedding and the reranking model: small, read whole by transformers, and another text is another result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_nnrp.models import build_embedding_model, build_reranking_model, build_vision_model
from vllm_nnrp.models.building import one_thread, quiet_transformers
from vllm_nnrp.models.progress import no_progress

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
MAX_BYTES = 2_000_000


@pytest.mark.parametrize("build", [build_embedding_model, build_reranking_model])
def test_they_are_small_and_others_may_read_them(build: Callable[..., Path]) -> None:
    files = list(build(no_progress).rglob("*"))
    assert sum(file.stat().st_size for file in files) < MAX_BYTES
    assert all(file.stat().st_mode & 0o777 == (0o755 if file.is_dir() else 0o644) for file in files)


def loaded(auto_class: Any, folder: Path) -> Any:
    with quiet_transformers(), one_thread():
        model, info = auto_class.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    return model.eval()


def test_another_text_is_another_vector() -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = build_embedding_model(no_progress)
    model, tokenizer = loaded(AutoModel, folder), AutoTokenizer.from_pretrained(folder)
    with one_thread(), torch.inference_mode():
        first, second = (
            model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, -1] for text in ("Paris", "Berlin")
        )
    assert torch.cosine_similarity(first, second, dim=0) < 0.9


def test_another_document_is_another_score_and_a_pair_is_marked() -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = build_reranking_model(no_progress)
    model, tokenizer = loaded(AutoModelForSequenceClassification, folder), AutoTokenizer.from_pretrained(folder)
    pair = tokenizer("ab", "c", return_tensors="pt")
    assert pair["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1]]
    assert tokenizer.decode(pair["input_ids"][0]) == "<|im_start|>ab<|im_end|>c<|im_end|>"
    with one_thread(), torch.inference_mode():
        scores = [model(**tokenizer("q", text, return_tensors="pt")).logits.item() for text in ("Paris", "Berlin")]
    assert abs(scores[0] - scores[1]) > 0.1


@pytest.mark.parametrize("build", [build_embedding_model, build_reranking_model, build_vision_model])
def test_the_tokenizer_is_in_words_that_transformers_4_reads(build: Callable[..., Path]) -> None:
    """It takes an object of names there, and only knows the old name of the class."""
    config = json.loads((build(no_progress) / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    names = {"image_token": "<image>"} if build is not build_reranking_model else {}
    assert config.get("extra_special_tokens", {}) == names
