# SPDX-License-Identifier: MIT
"""vLLM's per-token logprob dictionaries as values: the sampled token by its id, the alternatives by rank."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from chatdelta import TokenLogprob

FLOOR = -9999.0  # vLLM's own server says this for minus infinity, which JSON cannot
SPACE_PIECE = "Ġ"  # a vocabulary that writes a space like this is byte-level BPE
BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


def token_logprobs(output: Any, tokenizer: Any, *, top: int) -> tuple[TokenLogprob, ...]:
    """One entry per token of a CompletionOutput with its `top` alternatives (-1: all there are), or () for none."""
    if not output.logprobs:
        return ()
    return tuple(
        _entry(token_id, candidates, tokenizer, top)
        for token_id, candidates in zip(output.token_ids, output.logprobs, strict=True)
    )


def _entry(token_id: int, candidates: Any, tokenizer: Any, top: int) -> TokenLogprob:
    """The candidates are the sampled token and the `top` likeliest, which it need not be one of."""
    ranked = sorted(candidates.items(), key=lambda item: (item[1].rank is None, item[1].rank))
    alternatives = tuple(_token(other_id, logprob, tokenizer) for other_id, logprob in ranked)
    sampled = next(entry for entry in alternatives if entry.token_id == token_id)
    shown = alternatives if top < 0 else alternatives[:top]
    return TokenLogprob(sampled.token_id, sampled.token, sampled.token_bytes, sampled.logprob, shown)


def _token(token_id: int, logprob: Any, tokenizer: Any) -> TokenLogprob:
    text = logprob.decoded_token if logprob.decoded_token is not None else tokenizer.decode([token_id])
    return TokenLogprob(token_id, text, token_bytes(token_id, text, tokenizer), max(logprob.logprob, FLOOR))


def token_bytes(token_id: int, text: str, tokenizer: Any) -> bytes:
    """The bytes a token stands for, also where it is a part of a character, which has no text of its own."""
    piece = tokenizer.convert_ids_to_tokens([token_id])[0]
    if isinstance(piece, bytes):
        return piece
    if found := BYTE_TOKEN.fullmatch(piece):
        return bytes([int(found[1], 16)])
    if SPACE_PIECE in tokenizer.get_vocab() and all(character in byte_alphabet() for character in piece):
        return bytes(byte_alphabet()[character] for character in piece)
    return text.encode("utf-8", "replace")


@cache
def byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as a printable character: itself if it is one, else one from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + position): byte for position, byte in enumerate(others)}
