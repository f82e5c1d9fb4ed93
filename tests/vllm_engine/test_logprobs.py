# SPDX-License-Identifier: MIT
"""vLLM's candidate dictionaries to logprobs: the sampled token by its id, as many alternatives as were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_engine.logprobs import FLOOR, byte_alphabet, token_bytes, token_logprobs


@dataclass
class Candidate:
    logprob: float
    rank: int | None
    decoded_token: str | None


class Tokenizer:
    """The pieces of a vocabulary by their ids."""

    def __init__(self, *pieces: str | bytes, byte_level: bool = False) -> None:
        self._pieces = pieces
        self._byte_level = byte_level

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str | bytes]:
        return [self._pieces[token_id] if token_id < len(self._pieces) else "x" for token_id in ids]

    def get_vocab(self) -> dict[str, int]:
        return {"Ġ": 0} if self._byte_level else {}

    def decode(self, ids: list[int]) -> str:
        return f"<{ids[0]}>"


def entries(candidates: dict[int, Candidate], *, sampled: int, top: int) -> Any:
    output = SimpleNamespace(token_ids=[sampled], logprobs=[candidates])
    (entry,) = token_logprobs(output, Tokenizer(), top=top)
    return (entry.token_id, entry.logprob, [(other.token_id, other.token) for other in entry.top])


A, B, C = Candidate(-0.1, 1, "a"), Candidate(-2.5, 2, "b"), Candidate(-9.0, 7, "c")
ROWS: list[tuple[str, dict[int, Candidate], int, int, Any]] = [
    ("the sampled one first in the dictionary", {5: A, 6: B}, 5, 2, (5, -0.1, [(5, "a"), (6, "b")])),
    ("the sampled one is not the likeliest", {6: B, 5: A}, 6, 2, (6, -2.5, [(5, "a"), (6, "b")])),
    ("the sampled one is not among the likeliest", {7: C, 5: A, 6: B}, 7, 2, (7, -9.0, [(5, "a"), (6, "b")])),
    ("one alternative", {5: A}, 5, 1, (5, -0.1, [(5, "a")])),
    ("no alternatives", {5: A}, 5, 0, (5, -0.1, [])),
    ("all there are", {7: C, 5: A, 6: B}, 7, -1, (7, -9.0, [(5, "a"), (6, "b"), (7, "c")])),
    ("minus infinity", {5: Candidate(float("-inf"), 1, "a")}, 5, 0, (5, FLOOR, [])),
    ("no text", {5: Candidate(-1.0, 1, None)}, 5, 1, (5, -1.0, [(5, "<5>")])),
    ("no rank", {5: A, 8: Candidate(-1.0, None, "x")}, 5, 2, (5, -0.1, [(5, "a"), (8, "x")])),
]


@pytest.mark.parametrize(("candidates", "sampled", "top", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_a_token(candidates: dict[int, Candidate], sampled: int, top: int, expected: Any) -> None:
    assert entries(candidates, sampled=sampled, top=top) == expected


def test_none_were_asked_for() -> None:
    assert token_logprobs(SimpleNamespace(token_ids=[5], logprobs=None), Tokenizer(), top=0) == ()


BYTES: list[tuple[str, str | bytes, bool, str, bytes]] = [
    ("ascii", "Ġthe", True, " the", b" the"),
    ("the first half of a character", "Ã", True, "", b"\xc3"),
    ("its second half, whose text vLLM makes the whole", "©", True, "é", b"\xa9"),
    ("a whole character", "Ã©", True, "é", b"\xc3\xa9"),
    ("a byte without a printable form", "Ń", True, "", b"\xad"),
    ("a marker outside of the byte alphabet", "<｜end｜>", True, "<｜end｜>", "<｜end｜>".encode()),
    ("sentencepiece", "▁é", False, " é", b" \xc3\xa9"),
    ("sentencepiece's own bytes", "<0xE2>", False, "", b"\xe2"),
    ("tekken gives bytes", b"\xf0\x9f", False, "", b"\xf0\x9f"),
]


@pytest.mark.parametrize(("piece", "byte_level", "text", "expected"), [r[1:] for r in BYTES], ids=[r[0] for r in BYTES])
def test_the_bytes_of_a_token_are_its_own(piece: str | bytes, byte_level: bool, text: str, expected: bytes) -> None:
    assert token_bytes(0, text, Tokenizer(piece, byte_level=byte_level)) == expected


def test_the_byte_alphabet_has_every_byte_once() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))
