# SPDX-License-Identifier: MIT
"""The memorised model: a tiny Qwen3, trained here in seconds until it repeats its conversations exactly.

Through real vLLM it makes the native parsers produce reasoning, tool calls and text that are known token by token.
torch and transformers are imported by the functions that need them, never by importing this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nnrp.models.building import one_thread, quiet_transformers, save
from vllm_nnrp.models.cache import cached_folder, source_key
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS, Conversation
from vllm_nnrp.models.memorised_template import CHAT_TEMPLATE
from vllm_nnrp.models.progress import Progress, progress_bar

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

VOCABULARY_SIZE = 700
MAX_LENGTH = 4096
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
END_TOKEN = "<|im_end|>"
# A pair of bytes must be this frequent to be merged: so rare emoji and scripts stay split over several tokens.
MIN_PAIR_FREQUENCY = 3

LEARNING_RATE = 2e-3
WARM_UP_STEPS = 10
DECAY_STEPS = 150
MAX_STEPS = 400
# Probability that every single target token must reach: a wide margin, so that another attention kernel, batching or
# bfloat16 does not change the greedy choice.
MIN_PROBABILITY = 0.97
TOKENS_PER_BATCH = 1500


class MemorisingFailed(RuntimeError):
    """Training reached its bound and the model still does not repeat every conversation."""


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation as token ids. The loss counts for `completion` only, which ends with the end token."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]


def memorised_key() -> str:
    """Changes when the corpus, the template or the training does."""
    names = ("building", "memorised", "memorised_corpus", "memorised_template")
    return source_key(*(f"vllm_nnrp.models.{name}" for name in names))


def build_memorised_model(progress: Progress | None = None, root: Path | None = None) -> Path:
    """Folder of the memorised model, built if need be. Without `progress` a bar is drawn on stderr.

    `root`: another folder than the user's cache. Raises MemorisingFailed.
    """
    if progress is None:
        with progress_bar("memorised model") as bar:
            return build_memorised_model(bar, root)
    return cached_folder("memorised-qwen3", memorised_key(), lambda folder: _build(folder, progress), root)


def _build(folder: Path, progress: Progress) -> None:
    progress("loading torch", 0.0)
    with quiet_transformers(), one_thread():
        import torch

        progress("training the tokenizer", 0.1)
        tokenizer = make_tokenizer()
        rows = [encode(tokenizer, conversation) for conversation in CONVERSATIONS]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = make_model(tokenizer)
        train(model, rows, progress)
        progress("checking every answer", 0.85)
        check(model.eval(), rows)
        progress("saving", 0.98)
        save(folder, model, tokenizer)
    progress("done", 1.0)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE learnt from the corpus; the markup is single tokens that decoding does not skip, as in Qwen3."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    added = [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(MARKUP_TOKENS),
        min_frequency=MIN_PAIR_FREQUENCY,
        special_tokens=added,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = [str(message["content"]) for conversation in CONVERSATIONS for message in conversation.messages]
    bpe.train_from_iterator(texts + [conversation.completion for conversation in CONVERSATIONS], trainer)
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END_TOKEN,
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def encode(tokenizer: PreTrainedTokenizerFast, conversation: Conversation) -> Row:
    """The tokens of a conversation, prompt rendered by the chat template as a server would."""
    prompt = tokenizer.apply_chat_template(
        [dict(message) for message in conversation.messages],
        tools=[dict(tool) for tool in conversation.tools] or None,
        add_generation_prompt=True,
        tokenize=False,
        **conversation.template_kwargs,
    )
    completion = tokenizer.encode(conversation.completion + END_TOKEN, add_special_tokens=False)
    return Row(tuple(tokenizer.encode(prompt, add_special_tokens=False)), tuple(completion))


def make_model(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """The untrained network: 1.3 M parameters in float32."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=None,
        **ids,
    )
    model = Qwen3ForCausalLM(config).float()
    model.generation_config = GenerationConfig(**ids)
    return model


def train(model: PreTrainedModel, rows: Sequence[Row], progress: Progress) -> int:
    """Teach `model` the rows until each target token is all but certain. Returns the number of steps.

    Raises MemorisingFailed at MAX_STEPS.
    """
    import torch

    batches = [_tensors(batch, model.config.pad_token_id) for batch in _batched(rows)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _learning_rate_factor)
    step, least_certain = 0, 0.0
    while least_certain < MIN_PROBABILITY:
        if step >= MAX_STEPS:
            raise MemorisingFailed(f"after {step} steps the least certain token has probability {least_certain:.3f}")
        least_certain = 1.0
        for ids, labels in batches:
            losses = _token_losses(model, ids, labels)
            losses.mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            step += 1
            least_certain = min(least_certain, losses.detach().max().neg().exp().item())
        progress(f"learning by heart, step {step}", 0.2 + 0.65 * min(1.0, step / DECAY_STEPS))
    return step


def _learning_rate_factor(step: int) -> float:
    """Up quickly, then down in a straight line: at the full rate a few tokens never settle."""
    return min(1.0, (step + 1) / WARM_UP_STEPS, max(0.1, 1.0 - step / DECAY_STEPS))


def _batched(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of similar length together, so that little is padded."""
    batches: list[list[Row]] = [[]]
    for row in sorted(rows, key=_length):
        if batches[-1] and (len(batches[-1]) + 1) * _length(row) > TOKENS_PER_BATCH:
            batches.append([])
        batches[-1].append(row)
    return batches


def _length(row: Row) -> int:
    return len(row.prompt) + len(row.completion)


def _tensors(rows: Sequence[Row], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Token ids and labels, both of shape (rows, longest); labels are -100 where nothing is to be learnt.

    Padding is on the right, where a causal model cannot see it: no attention mask is needed.
    """
    import torch

    ids = torch.full((len(rows), max(map(_length, rows))), pad_token_id)
    labels = torch.full_like(ids, -100)
    for number, row in enumerate(rows):
        ids[number, : _length(row)] = torch.tensor(row.prompt + row.completion)
        labels[number, len(row.prompt) : _length(row)] = torch.tensor(row.completion)
    return ids, labels


def _token_losses(model: PreTrainedModel, ids: Tensor, labels: Tensor) -> Tensor:
    """Negative log-likelihood of every target token, one after another."""
    from torch.nn.functional import cross_entropy

    wanted = labels[:, 1:] != -100
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    return cross_entropy(logits[wanted], labels[:, 1:][wanted], reduction="none")


def check(model: PreTrainedModel, rows: Sequence[Row]) -> None:
    """Raise MemorisingFailed unless greedy decoding of every prompt gives exactly its completion."""
    for conversation, row in zip(CONVERSATIONS, rows, strict=True):
        if generate(model, row) != row.completion:
            raise MemorisingFailed(f"conversation {conversation.name!r} is not reproduced by greedy decoding")


def generate(model: PreTrainedModel, row: Row) -> tuple[int, ...]:
    """What the model answers to the row's prompt, greedily, through the end token."""
    import torch

    prompt = torch.tensor([row.prompt])
    answer = model.generate(
        input_ids=prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=len(row.completion) + 1,
    )
    return tuple(answer[0, len(row.prompt) :].tolist())
