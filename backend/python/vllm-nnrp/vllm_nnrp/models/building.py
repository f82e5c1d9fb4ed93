# SPDX-License-Identifier: MIT
"""What the builders do around torch and transformers: quietly, on one thread, and for older versions, too."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
    edit_json(folder / "config.json", rope_theta=model.config.rope_parameters["rope_theta"])
    # 5 writes its new name of this class; both versions know the old one.
    edit_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def edit_json(path: Path, **values: Any) -> None:
    """Set fields of the JSON object in a file."""
    content = json.loads(path.read_text(encoding="utf-8")) | values
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
