# SPDX-License-Identifier: MIT
"""What the builders do around torch and transformers: quietly, on one thread, and for older versions, too."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMON_TOKENS = {f"{name}_token" for name in ("bos", "cls", "eos", "mask", "pad", "sep", "unk")}


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No bars, log lines or warnings from transformers: the builders report their own progress."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import logging

        verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if had_bars:
                logging.enable_progress_bar()


@contextmanager
def one_thread() -> Iterator[None]:
    """One core is nearly as fast as two for matrices this small, and on a busy machine six times faster (measured)."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def save(folder: Path, model: Any, tokenizer: Any) -> None:
    """Write a model folder that transformers 4 reads as well: the older vLLM versions come with that."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # transformers 5 keeps theta inside `rope_parameters` only, where 4 does not look: it would take its default.
    if (rope := getattr(model.config, "rope_parameters", None)) is not None:
        edit_json(folder / "config.json", rope_theta=rope["rope_theta"])
    edit_tokenizer(folder)


def edit_tokenizer(folder: Path) -> None:
    """Say what transformers 5 wrote in words that both versions know."""
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    edit_json(file, tokenizer_class="PreTrainedTokenizerFast")  # 5 writes its new name
    if isinstance(config.get("extra_special_tokens"), list):  # 4 wants names for them, which 5 writes beside the list
        named = {name: token for name, token in config.items() if name.endswith("_token")}
        edit_json(file, extra_special_tokens={name: named[name] for name in named.keys() - COMMON_TOKENS})


def edit_json(path: Path, **values: Any) -> None:
    """Set fields of the JSON object in a file."""
    content = json.loads(path.read_text(encoding="utf-8")) | values
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
