# SPDX-License-Identifier: MIT
"""The property that the size of the engine's deltas changes nothing, for every split of every entry.

An entry is played once, token by token, and everything is kept: vLLM's outputs, what our parser was fed with, what it
said. A split is then made of the same outputs, merged as vLLM merges those of a late consumer, and goes through our
engine. As long as the parser is fed as before, it is not asked again: it would say the same. Where the feed differs (a
stop string holds text back; a tokenizer cannot cut a delta) the split is played in full.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from chatdelta import ChatRequest, EngineDelta, Origin
from tests.parity.entries import Entry
from tests.parity.runs import Bench, Outcome
from vllm_engine.bindings import ChoiceParser
from vllm_engine.calls import Said

RANDOM_SPLITS = 200
LARGEST_RANDOM_DELTA = 9


def all_splits(entry: Entry, count: int) -> Iterator[Sequence[int]]:
    """Every single cut point, every fixed size, and seeded random splits; the last size of each is repeated."""
    for cut in range(1, count):
        yield (cut, count - cut)
    for size in range(1, count + 1):
        yield (size,)
    seeded = random.Random(f"splits of {entry.name}")
    for _ in range(RANDOM_SPLITS):
        yield [seeded.randint(1, LARGEST_RANDOM_DELTA) for _ in range(max(1, count))]


async def differing_splits(
    bench: Bench, entry: Entry, splits: Sequence[Sequence[int]]
) -> list[tuple[Sequence[int], Outcome]]:
    """Those whose result, streamed or whole, is not the one of single tokens, each with that result."""
    wanted, body = await bench.ours(entry, (1,))
    if body != wanted or wanted.faults:
        return [((1,), body)]
    played = await Played.once(bench, entry)
    found = []
    for sizes in splits:
        if await played.same(sizes):
            continue
        for outcome in await bench.ours(entry, sizes):
            if outcome != wanted:
                found.append((sizes, outcome))
                break
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """One token: what the parser was fed with and how it was afterwards."""

    fed: tuple[str, int | None, bool]
    said: Said
    reasoning_tokens: int
    called_tools: bool


class Played:
    """One entry, recorded: a Runtime for `VllmEngine` that says again what was said then."""

    def __init__(self, bench: Bench, entry: Entry) -> None:
        self._engine = bench.engine
        self._request = ChatRequest("parity-split", bench.body(entry), Origin(door="test"))
        self.tokenizer = bench.tokenizer
        self.llm = self
        self.errored = False
        self._sizes: Sequence[int] = ()
        self._outputs: list[Any] = []
        self._steps: list[Step] = []
        self._deltas: list[EngineDelta] = []
        self._rendered: Any = None
        self._parser: Any = None

    @classmethod
    async def once(cls, bench: Bench, entry: Entry) -> Played:
        self = cls(bench, entry)
        bench.play(bench.token_ids(entry), (1,))
        with self._in_place_of() as runtime:
            self._rendered = await runtime.render(self._request)
            stream = runtime.llm.generate(self._rendered.prompt, self._rendered.sampling_params, "parity-split")
            self._outputs = [_copied(output) async for output in stream]
            self._parser = _Recording(self._rendered.parsers[0], self._steps)
            self._sizes = (1,)
            self._deltas = await self._generated()
        return self

    async def same(self, sizes: Sequence[int]) -> bool:
        """Whether deltas of these sizes feed the parser as before, and give what they gave."""
        self._sizes, self._parser = sizes, _Repeating(self._steps)
        with self._in_place_of():
            deltas = await self._generated()
        return not self._parser.differs and deltas == self._deltas

    async def _generated(self) -> list[EngineDelta]:
        """Without what they say of the split itself."""
        deltas = [delta async for delta in self._engine.generate(self._request)]
        return [dataclasses.replace(delta, more_follows=False) for delta in deltas]

    @contextmanager
    def _in_place_of(self) -> Iterator[Any]:
        runtime, self._engine._runtime = self._engine._runtime, self
        try:
            yield runtime
        finally:
            self._engine._runtime = runtime

    async def render(self, request: Any) -> Any:
        return dataclasses.replace(self._rendered, parsers=(self._parser,))

    def pooling(self, *_: Any) -> Any:
        raise NotImplementedError

    async def generate(self, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        position = 0
        for size in chain(self._sizes, repeat(self._sizes[-1])):
            if position >= len(self._outputs):
                return
            merged = _copied(self._outputs[position])
            for output in self._outputs[position + 1 : position + size]:
                merged.add(output, aggregate=True)
            position += size
            yield merged

    async def abort(self, request_id: str) -> None: ...


class _Recording:
    """A parser that leaves its steps behind."""

    def __init__(self, parser: ChoiceParser, steps: list[Step]) -> None:
        self._parser = parser
        self._steps = steps

    def feed(self, text: str, token_id: int | None, *, finished: bool) -> Said:
        said = self._parser.feed(text, token_id, finished=finished)
        self._steps.append(Step((text, token_id, finished), said, self.reasoning_tokens, self.called_tools))
        return said

    @property
    def reasoning_tokens(self) -> int:
        return self._parser.reasoning_tokens

    @property
    def called_tools(self) -> bool:
        return self._parser.called_tools


class _Repeating:
    """A parser that says it all again, while it is fed the same."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._at = 0
        self.differs = False

    def feed(self, text: str, token_id: int | None, *, finished: bool) -> Said:
        if self._at == len(self._steps) or self._steps[self._at].fed != (text, token_id, finished):
            self.differs = True
            return Said()
        self._at += 1
        return self._steps[self._at - 1].said

    @property
    def reasoning_tokens(self) -> int:
        return self._steps[self._at - 1].reasoning_tokens

    @property
    def called_tools(self) -> bool:
        return self._steps[self._at - 1].called_tools


def _copied(output: Any) -> Any:
    """With completions of its own: merging changes them."""
    copied = copy.copy(output)
    copied.outputs = [
        dataclasses.replace(completion, token_ids=list(completion.token_ids)) for completion in output.outputs
    ]
    return copied
