# SPDX-License-Identifier: MIT
"""A real engine, over every door and looped over without one: `end-to-end`, `end-to-end-tiny` and `long-context`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from vllm_nnrp.bench.asking import Ask, BenchFailed, all_ended, all_started
from vllm_nnrp.bench.figures import spread
from vllm_nnrp.bench.lab import Case, Lab, Measured

DOORS = ("nnrp-tcp", "grpc", "http")
DIRECT = "direct"
PATHS = (DIRECT, *DOORS)
STREAMS = (1, 4, 16)
DEMO, MEMORISED = "demo", "memorised"
QUESTION = "Start a long answer."  # the memorised model's longest


class EndToEnd:
    """`tokens` of an answer: enough for some seconds of many streams."""

    rounds = 9  # threads that wait for each other busily make two rounds differ by several per cent

    def __init__(self, name: str, model: str, tokens: int) -> None:
        self.name = name
        self.model = model
        self._tokens = tokens

    def cases(self, lab: Lab) -> Sequence[Case]:
        tokens = int(lab.size(self._tokens, 32))
        counts = (1, 4) if lab.quick else STREAMS
        return [
            Case(f"{path} x{count}", lambda path=path, count=count: whole(lab, path, count, tokens))  # type: ignore[misc]
            for count in counts
            for path in PATHS
        ]


async def whole(lab: Lab, path: str, count: int, tokens: int) -> Measured:
    """Tokens by the answers' own counts, over the seconds from the first question to the last end."""
    asks = [Ask(next(lab.seeds), tokens, tools=False, text=QUESTION) for _ in range(count)]
    cpu_s = lab.doors.cpu_s()
    if path == DIRECT:
        found = await lab.doors.control("direct", bodies=[ask.body(lab.model) for ask in asks])
        made, seconds, first = found["tokens"], found["seconds"], found["first_s"]
    else:
        async with lab.opened(path, count) as door:
            begun_s = time.monotonic()
            streams = [door.ask(ask) for ask in asks]
            await all_ended(streams)
            seconds = max(stream.ended_s for stream in streams) - begun_s
            first = [stream.receipts[0][0] - begun_s for stream in streams]
            made = sum(stream.usage_tokens for stream in streams)
    if made != tokens * count:
        raise BenchFailed(f"{path}: {made} tokens where {tokens * count} were asked for")
    return Measured(
        {
            "streams": count,
            "tokens": made,
            "tokens_per_s": made / seconds,
            "first_token_p50_ms": spread(first).p50 * 1e3,
            "server_cpu_us_per_token": (lab.doors.cpu_s() - cpu_s) / made * 1e6,
        }
    )


class LongContext:
    """Every prompt is another one from its first words on, so that no prefix is found in the cache."""

    name = "long-context"
    model = DEMO
    rounds = 2
    words = (1000, 4000)

    def cases(self, lab: Lab) -> Sequence[Case]:
        words = (200,) if lab.quick else self.words
        generate = [
            Case(f"{door}, {count} words", lambda door=door, count=count: _answer(lab, door, count))  # type: ignore[misc]
            for count in words
            for door in DOORS
        ]
        cancel = [
            Case(f"{door}, cancel in prefill", lambda door=door: _cancel(lab, door, self.words[-1]))  # type: ignore[misc]
            for door in DOORS
        ]
        return [*generate, *cancel]


ANSWER_TOKENS = 32
CANCEL_AFTER_S = 0.1
PATIENCE_S = 300.0  # a long prompt on a small CPU


def _prompt(lab: Lab, words: int, tokens: int) -> Ask:
    seed = next(lab.seeds)
    return Ask(seed, tokens, tools=False, text=f"{seed} {time.monotonic_ns()} tells: " + "house " * words)


async def _answer(lab: Lab, door_name: str, words: int) -> Measured:
    async with lab.opened(door_name, 1) as door:
        stream = door.ask(_prompt(lab, words, int(lab.size(ANSWER_TOKENS, 4))))
        await all_ended([stream], PATIENCE_S)
    first_s = stream.receipts[0][0]
    return Measured(
        {
            "words": words,
            "first_token_ms": (first_s - stream.asked_s) * 1e3,
            "tokens_per_s": (stream.usage_tokens - 1) / (stream.ended_s - first_s),
        }
    )


async def _cancel(lab: Lab, door_name: str, words: int) -> Measured:
    """`next_first_ms`: how long the next small question waits; the rest of the prefill's step is in it."""
    await lab.doors.control("forget")
    async with lab.opened(door_name, 2) as door:
        stream = door.ask(_prompt(lab, words, ANSWER_TOKENS))
        await asyncio.sleep(CANCEL_AFTER_S)
        if stream.started.is_set():
            raise BenchFailed(f"{words} words were read within {CANCEL_AFTER_S} s: there was nothing to cancel")
        cancelled_s = time.monotonic()
        door.cancel(stream)
        async with asyncio.timeout(60):
            await stream.ended.wait()
        following = door.ask(_prompt(lab, 1, 2))
        await all_started([following], PATIENCE_S)
        await all_ended([following], PATIENCE_S)
    aborts = await lab.doors.control("take")
    return Measured(
        {
            "abort_ms": (aborts[0] - cancelled_s) * 1e3,
            "end_ms": (stream.ended_s - cancelled_s) * 1e3,
            "next_first_ms": (following.receipts[0][0] - following.asked_s) * 1e3,
        }
    )
