# SPDX-License-Identifier: MIT
"""Model folders without weights: a config and a tokenizer built here, with each family's markers as single tokens."""

from __future__ import annotations

import json
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.parity.corpus import FAMILIES
from tests.parity.entries import Family
from tests.parity.npm import DEEPSEEK_V3, FILES, GEMMA3, GPT_OSS, LLAMA3, QWEN3, folder_of

END = "<|im_end|>"
CHAT_TOKENS = ("<|endoftext|>", "<|im_start|>", END)
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "vocab_size": 2048,
}
TEMPLATE = (
    "{%% set thinking = %s | default(false) %%}"
    "{%% for message in messages %%}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{%% endfor %%}"
    "{%% if add_generation_prompt %%}<|im_start|>assistant\n%s{%% endif %%}"
)
TEKKEN_CONTROL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "[ARGS]", "[CALL_ID]", "[THINK]"),
    *("[/THINK]",),
)
# Real tokenizers with their real chat templates, which only Qwen's and DeepSeek's packages have with calls in them.
PACKAGES = {"qwen3": QWEN3, "llama3_1": LLAMA3, "deepseek_v3": DEEPSEEK_V3, "gemma3": GEMMA3}
LARGEST_VOCABULARY = 262208  # Gemma 3's
# The package of Llama 3.1 has the tokenizer of Llama 3, where this token (128010) was not in use yet.
RENAMED = {"<|reserved_special_token_5|>": "<|python_tag|>"}
HARMONY_ENDS = (200002, 199999, 200012)  # <|return|>, <|endoftext|>, <|call|>: gpt-oss's generation_config.json
MERGES = 400  # so that tokens are words and bits of markup, as in a real tokenizer, and rare characters stay split


def build_folder(family: Family, folder: Path) -> Path:
    """A folder vLLM takes for a model of `family`."""
    folder.mkdir(parents=True)
    config = {**CONFIG, **family.config}
    if family.tokenizer.startswith("tekken"):
        config["vocab_size"] = 131072
        _write_tekken(folder / "tekken.json", family.tokenizer)
    elif family.tokenizer == "o200k":
        _copy_harmony(folder)
    elif family.tokenizer in PACKAGES:
        _copy_fetched(PACKAGES[family.tokenizer], folder)
        config["vocab_size"] = LARGEST_VOCABULARY
    else:
        _tokenizer(family).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def _write_tekken(path: Path, kind: str) -> None:
    """mistral_common's own tokenizer (v3), or the same with the version and the control tokens of v13."""
    spec = find_spec("mistral_common")
    if spec is None or spec.origin is None:
        raise RuntimeError("mistral_common is not installed")
    packaged = Path(spec.origin).parent / "data" / "tekken_240911.json"
    if kind == "tekken":
        shutil.copyfile(packaged, path)
        return
    tekken = json.loads(packaged.read_text(encoding="utf-8"))
    tekken["config"]["version"] = "v13"
    tekken["special_tokens"] = [
        {"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(TEKKEN_CONTROL)
    ]
    tekken.pop("image", None)
    path.write_text(json.dumps(tekken), encoding="utf-8")


def _copy_fetched(package: str, folder: Path) -> None:
    for name in FILES:
        text = (folder_of(package) / name).read_text(encoding="utf-8")
        for old, new in RENAMED.items() if package == LLAMA3 else ():
            text = text.replace(f'"{old}"', f'"{new}"')
        if package == DEEPSEEK_V3:  # for a config of a Llama, transformers makes of this class another tokenizer
            text = text.replace('"LlamaTokenizerFast"', '"PreTrainedTokenizerFast"')
        (folder / name).write_text(text, encoding="utf-8")


def _copy_harmony(folder: Path) -> None:
    _copy_fetched(GPT_OSS, folder)
    ends = {"eos_token_id": list(HARMONY_ENDS)}
    (folder / "generation_config.json").write_text(json.dumps(ends), encoding="utf-8")


def _tokenizer(family: Family) -> Any:
    from tokenizers import AddedToken, Tokenizer
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer.from_str(_base())
    bpe.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in (*CHAT_TOKENS, *family.special_tokens)]
    )
    bpe.add_tokens([AddedToken(text, special=False, normalized=False) for text in family.markup_tokens])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token="<|endoftext|>",
        chat_template=TEMPLATE % (family.thinking_kwarg, family.generation_prompt),
        clean_up_tokenization_spaces=False,
    )


@cache
def _base() -> str:
    """One byte-level BPE for all families, learnt from the corpus; as its JSON text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + MERGES, min_frequency=3, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([raw.text for family in FAMILIES for raw in family.raws.values()], trainer)
    return str(bpe.to_str())
