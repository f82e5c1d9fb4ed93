# SPDX-License-Identifier: MIT
"""How many tokens an answer may have: vLLM moved its own rule between versions, so here it is once."""

from __future__ import annotations


def output_budget(*, room: int, requested: int | None, default: int | None, override: int | None) -> int:
    """The smallest of what the context has room for, what was asked for (else the model's default), and an override.

    All in tokens. A prompt that leaves no room gives a budget below 1, which vLLM refuses with its own message.
    """
    wanted = requested if requested is not None else default
    return min(limit for limit in (room, wanted, override) if limit is not None)
