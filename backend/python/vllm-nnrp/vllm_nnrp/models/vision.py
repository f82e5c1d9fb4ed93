# SPDX-License-Identifier: MIT
"""The vision model: a tiny Llava with random weights. It sees images and says nothing sensible.

For what can be tested without sense: which tokens and media reach the engine, that they matter, and what is refused.
torch and transformers are imported by the functions that need them, never by importing this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nnrp.models.building import edit_tokenizer, one_thread, quiet_transformers
from vllm_nnrp.models.cache import cached_folder, source_key
from vllm_nnrp.models.progress import Progress, progress_bar

if TYPE_CHECKING:
    from transformers import LlavaProcessor, PreTrainedModel, PreTrainedTokenizerFast

IMAGE_TOKEN = "<image>"
END_TOKEN = "<|im_end|>"
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", END_TOKEN, IMAGE_TOKEN)
VOCABULARY_SIZE = 256 + len(SPECIAL_TOKENS)  # every byte is a token, nothing is merged
MAX_LENGTH = 1024
IMAGE_SIZE = 28  # pixels; images of any other size are scaled to it
PATCH_SIZE = 14
TOKENS_PER_IMAGE = (IMAGE_SIZE // PATCH_SIZE) ** 2
HIDDEN_SIZE = 64
# The random weights are this large so that another image changes the answer's probabilities visibly.
WEIGHTS_SPREAD = 0.2

CHAT_TEMPLATE = r"""
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\n' -}}
  {%- if message.content is string -%}
    {{- message.content -}}
  {%- else -%}
    {%- for part in message.content -%}
      {{- '<image>' if part.type == 'image' else part.text -}}
    {%- endfor -%}
  {%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endfor -%}
{{- '<|im_start|>assistant\n' if add_generation_prompt else '' -}}
""".strip()


def vision_key() -> str:
    """Changes when this builder does."""
    return source_key("vllm_nnrp.models.building", "vllm_nnrp.models.vision")


def build_vision_model(progress: Progress | None = None, root: Path | None = None) -> Path:
    """Folder of the vision model, built if need be. Without `progress` a bar is drawn on stderr.

    `root`: another folder than the user's cache.
    """
    if progress is None:
        with progress_bar("vision model") as bar:
            return build_vision_model(bar, root)
    return cached_folder("random-llava", vision_key(), lambda folder: _build(folder, progress), root)


def _build(folder: Path, progress: Progress) -> None:
    progress("loading torch", 0.0)
    with quiet_transformers(), one_thread():
        import torch

        progress("making the model", 0.5)
        tokenizer = make_tokenizer()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = make_model(tokenizer)
        progress("saving", 0.8)
        save(folder, model, make_processor(tokenizer))
    progress("done", 1.0)


def save(folder: Path, model: PreTrainedModel, processor: LlavaProcessor) -> None:
    """Write a folder that reads like a published Llava, for vLLM and for transformers 4 and 5."""
    from safetensors.torch import load_file, save_file

    model.save_pretrained(folder)
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    # transformers 5.8 leaves out a level of CLIP's names, and vLLM 0.26 looks for it.
    tower, level = "vision_tower.", "vision_tower.vision_model."
    renamed = {name.replace(tower, level) if level not in name else name: tensors[name] for name in tensors}
    save_file(renamed, weights, metadata={"format": "pt"})
    processor.save_pretrained(folder)
    processor.image_processor.save_pretrained(folder)  # the file where transformers 4 looks for it
    edit_tokenizer(folder)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and the special tokens, nothing learnt."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={char: number for number, char in enumerate(alphabet)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END_TOKEN,
        pad_token="<|endoftext|>",
        extra_special_tokens={"image_token": IMAGE_TOKEN},
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def make_processor(tokenizer: PreTrainedTokenizerFast) -> LlavaProcessor:
    """Scales an image to IMAGE_SIZE and puts TOKENS_PER_IMAGE image tokens where the template put one."""
    from transformers import CLIPImageProcessor, LlavaProcessor

    size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    image_processor = CLIPImageProcessor(size=size, crop_size=size)
    return LlavaProcessor(
        image_processor,
        tokenizer,
        patch_size=PATCH_SIZE,
        vision_feature_select_strategy="default",
        chat_template=CHAT_TEMPLATE,
        image_token=IMAGE_TOKEN,
        num_additional_image_tokens=1,  # CLIP's class token, which the strategy drops
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """CLIP's vision tower, Llava's projector and Llama, two layers each, in float32."""
    from transformers import CLIPVisionConfig, GenerationConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    layers = {"hidden_size": HIDDEN_SIZE, "intermediate_size": 2 * HIDDEN_SIZE, "num_hidden_layers": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            **layers, num_attention_heads=2, image_size=IMAGE_SIZE, patch_size=PATCH_SIZE, projection_dim=HIDDEN_SIZE
        ),
        text_config=LlamaConfig(
            **layers,
            **ids,
            vocab_size=len(tokenizer),
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=MAX_LENGTH,
            initializer_range=WEIGHTS_SPREAD,
            bos_token_id=None,
            tie_word_embeddings=False,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE_TOKEN),
        image_seq_length=TOKENS_PER_IMAGE,
        vision_feature_select_strategy="default",
        vision_feature_layer=-2,
        initializer_range=WEIGHTS_SPREAD,
        tie_word_embeddings=False,
    )
    model = LlavaForConditionalGeneration(config).float()
    model.generation_config = GenerationConfig(**ids)
    return model
