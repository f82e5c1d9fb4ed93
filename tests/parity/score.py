# SPDX-License-Identifier: MIT
"""Compares an outcome with the meaning written by hand, and names what is different."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.parity.entries import Call, Expected
from tests.parity.runs import Outcome


def misses(expected: Expected, outcome: Outcome) -> list[str]:
    """What is wrong, in a few words each; empty when the outcome means what was expected."""
    return list(_misses(expected, outcome))


def _misses(expected: Expected, outcome: Outcome) -> Iterator[str]:
    yield from outcome.faults
    if outcome.content.strip() != expected.content.strip():
        yield f"content {_short(outcome.content)} instead of {_short(expected.content)}"
    if outcome.reasoning.strip() != expected.reasoning.strip():
        yield f"reasoning {_short(outcome.reasoning)} instead of {_short(expected.reasoning)}"
    names = [name for name, _ in outcome.calls]
    wanted = [call.name for call in expected.calls]
    if names != wanted:
        yield f"calls {names} instead of {wanted}"
    else:
        for call, (_, arguments) in zip(expected.calls, outcome.calls, strict=True):
            yield from _argument_misses(call, arguments)
    if outcome.finish != expected.finish:
        yield f"finish {outcome.finish!r} instead of {expected.finish!r}"


def _argument_misses(call: Call, text: str) -> Iterator[str]:
    try:
        value = json.loads(text or "{}" if call.arguments is not None else text)
    except ValueError:
        if call.arguments is not None:
            yield f"arguments {_short(text)} are not JSON"
        return
    if call.arguments is None:
        yield f"a call that was cut looks whole: {_short(text)}"
    elif value != call.arguments:
        yield f"arguments {_short(text)}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:45]}…{text[-12:]}")
