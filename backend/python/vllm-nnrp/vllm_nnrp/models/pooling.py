# SPDX-License-Identifier: MIT
"""Two tiny models with random weights that do not generate: one embeds texts, one ranks documents.

They know nothing, but what they make of a text is exact: transformers must find the same numbers.
torch and transformers are imported by the functions that need them, never by importing this module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nnrp.models.building import edit_tokenizer, one_thread, quiet_transformers, save
from vllm_nnrp.models.cache import cached_folder, source_key
from vllm_nnrp.models.progress import Progress, progress_bar
from vllm_nnrp.models.vision import END_TOKEN, make_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

MAX_LENGTH = 512
# The random weights are this large so that another text gives another vector and another score.
WEIGHTS_SPREAD = 0.2
START_TOKEN = "<|im_start|>"
LAYERS = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
# What sentence-transformers reads, and vLLM with it: the last token's vector, at length 1.
MODULES = (("0", "", "Transformer"), ("1", "1_Pooling", "Pooling"), ("2", "2_Normalize", "Normalize"))


def pooling_key() -> str:
    """Changes when these builders or their tokenizer do."""
    return source_key(*(f"vllm_nnrp.models.{name}" for name in ("building", "pooling", "vision")))


def build_embedding_model(progress: Progress | None = None, root: Path | None = None) -> Path:
    """Folder of the embedding model, a Qwen3, built if need be. Without `progress` a bar is drawn on stderr.

    `root`: another folder than the user's cache.
    """
    if progress is None:
        with progress_bar("embedding model") as bar:
            return build_embedding_model(bar, root)
    return cached_folder(
        "random-qwen3-embedding", pooling_key(), lambda folder: _build_embedding(folder, progress), root
    )


def build_reranking_model(progress: Progress | None = None, root: Path | None = None) -> Path:
    """Folder of the reranking model, a Bert cross-encoder; otherwise like `build_embedding_model`."""
    if progress is None:
        with progress_bar("reranking model") as bar:
            return build_reranking_model(bar, root)
    return cached_folder("random-bert-reranker", pooling_key(), lambda folder: _build_reranker(folder, progress), root)


def _build_embedding(folder: Path, progress: Progress) -> None:
    progress("loading torch", 0.0)
    with quiet_transformers(), one_thread():
        from transformers import Qwen3Config, Qwen3Model

        progress("making the model", 0.5)
        tokenizer = make_tokenizer()
        config = Qwen3Config(
            **LAYERS,
            vocab_size=len(tokenizer),
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=MAX_LENGTH,
            initializer_range=WEIGHTS_SPREAD,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
        save(folder, _seeded(Qwen3Model, config), tokenizer)
        _write_pooling(folder)
    progress("done", 1.0)


def _build_reranker(folder: Path, progress: Progress) -> None:
    progress("loading torch", 0.0)
    with quiet_transformers(), one_thread():
        from transformers import BertConfig, BertForSequenceClassification

        progress("making the model", 0.5)
        tokenizer = make_pair_tokenizer()
        config = BertConfig(
            **LAYERS,
            vocab_size=len(tokenizer),
            max_position_embeddings=MAX_LENGTH,
            initializer_range=WEIGHTS_SPREAD,
            pad_token_id=tokenizer.pad_token_id,
            num_labels=1,
        )
        _seeded(BertForSequenceClassification, config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        edit_tokenizer(folder)
    progress("done", 1.0)


def _seeded(model_class: type[PreTrainedModel], config: object) -> PreTrainedModel:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model_class(config).float().eval()


def _write_pooling(folder: Path) -> None:
    modules = [
        {"idx": int(name), "name": name, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for name, path, kind in MODULES
    ]
    (folder / "modules.json").write_text(json.dumps(modules, indent=2), encoding="utf-8")
    pooling = folder / "1_Pooling"
    pooling.mkdir()
    settings = {"word_embedding_dimension": LAYERS["hidden_size"], "pooling_mode_lasttoken": True}
    (pooling / "config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")


def make_pair_tokenizer() -> PreTrainedTokenizerFast:
    """A byte is a token; a pair of texts is marked and numbered as Bert wants it."""
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    tokenizer = make_tokenizer()
    backend = tokenizer.backend_tokenizer
    backend.post_processor = TemplateProcessing(
        single=f"{START_TOKEN} $A {END_TOKEN}",
        pair=f"{START_TOKEN} $A {END_TOKEN} $B:1 {END_TOKEN}:1",
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in (START_TOKEN, END_TOKEN)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token=START_TOKEN,
        sep_token=END_TOKEN,
        pad_token=tokenizer.pad_token,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )
