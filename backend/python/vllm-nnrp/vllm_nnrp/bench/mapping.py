# SPDX-License-Identifier: MIT
"""`mapper`: from an engine's delta to the bytes of an event and to a gRPC reply, beside encoding that JSON alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from chatdelta import EngineDelta, ResponseHead, StreamMapper, TokenLogprob, ToolCallFragment
from nnrp_openai.encoding import encode_event
from vllm_nnrp.bench.lab import Case, Lab, Measured
from vllm_nnrp.grpc_door.encode import TextIn, encode_events

KINDS = ("text", "reasoning", "arguments", "logprobs")


def deltas(kind: str, count: int) -> list[EngineDelta]:
    """As the engine yields them, one token each."""
    made = []
    for number in range(1, count + 1):
        match kind:
            case "text":
                delta = EngineDelta(content=" word")
            case "reasoning":
                delta = EngineDelta(reasoning=" word", reasoning_tokens=number)
            case "arguments":
                first = ToolCallFragment(0, "call-1", "lookup", ' "a')
                fragment = first if number == 1 else ToolCallFragment(0, arguments=' "a')
                delta = EngineDelta(tool_calls=(fragment,))
            case _:
                top = TokenLogprob(7, " word", b" word", -0.25)
                entry = TokenLogprob(7, " word", b" word", -0.25, (top,))
                delta = EngineDelta(content=" word", logprobs=(entry,))
        made.append(replace(delta, prompt_tokens=20, completion_tokens=number))
    return made


class Mapper:
    name = "mapper"
    rounds = 5

    def cases(self, lab: Lab) -> Sequence[Case]:
        count = int(lab.size(20_000, 1_000))
        return [_case(kind, count) for kind in KINDS]


def _case(kind: str, count: int) -> Case:
    async def measure() -> Measured:
        work = deltas(kind, count)
        nnrp_s = _spent(lambda: to_events(work)) / count
        grpc_s = _spent(lambda: to_replies(work)) / count
        encoded = [msgspec.json.decode(event) for event in to_events(work)]
        encode = msgspec.json.Encoder().encode
        bare_s = _spent(lambda: [encode(event) for event in encoded]) / count
        return Measured(
            {
                "nnrp_us": nnrp_s * 1e6,
                "grpc_us": grpc_s * 1e6,
                "bare_json_us": bare_s * 1e6,
                "nnrp_events_per_s": 1 / nnrp_s,
                "grpc_events_per_s": 1 / grpc_s,
            }
        )

    return Case(kind, measure)


def to_events(work: Sequence[EngineDelta]) -> list[bytes]:
    mapper = StreamMapper(ResponseHead("r", 0, "bench"))
    return [encode_event(event) for delta in work for event in mapper.feed(delta)]


def to_replies(work: Sequence[EngineDelta]) -> list[bytes]:
    mapper = StreamMapper(ResponseHead("r", 0, "bench"))
    replies = []
    for delta in work:
        for reply in encode_events(mapper.feed(delta), mapper.usage, text_in=TextIn.DELTAS):
            replies.append(reply.SerializeToString())
    return replies


def _spent(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun
