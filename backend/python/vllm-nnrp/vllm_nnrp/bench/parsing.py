# SPDX-License-Identifier: MIT
"""`parse` and `length`: costs inside the server's process, where vLLM's own code is measured beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_nnrp.bench.lab import INTERVAL_S, Case, Lab, Measured

KINDS = ("text", "reasoning", "arguments")
LENGTHS = (256, 1024, 4096, 16_384)
SHORTEST, LONGEST = LENGTHS[0], LENGTHS[-1]


class Parse:
    name = "parse"
    rounds = 5

    def cases(self, lab: Lab) -> Sequence[Case]:
        tokens, repeats = int(lab.size(3000, 200)), int(lab.size(200, 10))

        async def per_token(kind: str) -> Measured:
            spent = await lab.doors.control("parsing", kind=kind, tokens=tokens)
            return Measured({"ours_us": spent["ours_s"] * 1e6, "vllm_us": spent["vllm_s"] * 1e6})

        async def per_request(tools: bool) -> Measured:
            await lab.doors.control("pace", interval_s=0)
            spent = await lab.doors.control("request", tools=tools, repeats=repeats)
            await lab.doors.control("pace", interval_s=INTERVAL_S)
            return Measured({"ours_us": spent["ours_s"] * 1e6, "vllm_us": spent["vllm_s"] * 1e6})

        return [
            *(Case(f"token, {kind}", lambda kind=kind: per_token(kind)) for kind in KINDS),  # type: ignore[misc]
            Case("request, plain", lambda: per_request(False)),
            Case("request, tools", lambda: per_request(True)),
        ]


class Length:
    """The same number of tokens in all, in answers of every length."""

    name = "length"
    rounds = 5

    def cases(self, lab: Lab) -> Sequence[Case]:
        lengths = (256, 1024) if lab.quick else LENGTHS

        async def measure(parsers: bool, tokens: int) -> Measured:
            await lab.doors.control("pace", interval_s=0)
            repeats = lengths[-1] // tokens
            spent = await lab.doors.control("length", parsers=parsers, tokens=tokens, repeats=repeats)
            await lab.doors.control("pace", interval_s=INTERVAL_S)
            return Measured({"tokens": tokens, "us_per_token": spent * 1e6})

        return [
            Case(f"{kind}, {tokens}", lambda parsers=parsers, tokens=tokens: measure(parsers, tokens))  # type: ignore[misc]
            for kind, parsers in (("plain", False), ("parsers", True))
            for tokens in lengths
        ]
