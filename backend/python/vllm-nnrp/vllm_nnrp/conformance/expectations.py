# SPDX-License-Identifier: MIT
"""A recipe's own expectations: how the case ends, which events come, how often, in which order, with which fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_nnrp.conformance.models import Expect, ExpectedEvent, Json
from vllm_nnrp.conformance.observed import Observed, kind_of

MUST_SHOW = {"error": "response.error", "cancelled": "response.cancelled"}  # by terminal


def missed(expect: Expect, observed: Observed) -> list[str]:
    """What was expected and did not come, in words; empty if all of it did."""
    return [*_terminal(expect, observed), *_events(expect.events, observed.events)]


def contains(actual: Any, expected: Any) -> bool:
    """Whether `expected` is in `actual`: objects and the first entries of arrays recursively, anything else equal."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        return all(name in actual and contains(actual[name], value) for name, value in expected.items())
    if isinstance(actual, list) and isinstance(expected, list):
        return len(expected) <= len(actual) and all(map(contains, actual, expected))
    return type(actual) is type(expected) and bool(actual == expected)


def _terminal(expect: Expect, observed: Observed) -> list[str]:
    found = []
    if observed.terminal_kind != expect.terminal:
        found.append(f"the terminal is {observed.terminal_kind or 'missing'}, not {expect.terminal}")
    required = MUST_SHOW.get(expect.terminal)
    if required is not None and not observed.of(required):
        found.append(f"the terminal {expect.terminal} must come with {required}")
    return found


def _events(expected: Sequence[ExpectedEvent], events: Sequence[Json]) -> list[str]:
    """Each expected event is looked for behind the one before it."""
    found = []
    start = 0
    for each in expected:
        of_type = [event for event in events if kind_of(event) == each.type]
        least = (0 if each.optional else 1) if each.min_count is None else each.min_count
        if len(of_type) < least:
            found.append(f"{each.type} came {len(of_type)} times, not at least {least}")
        if not of_type:
            continue
        position = next((at for at in range(start, len(events)) if kind_of(events[at]) == each.type), None)
        if position is None:
            if least:
                found.append(f"{each.type} did not come after the event expected before it")
            continue
        found += [
            f"{each.type}: {name} is {events[position].get(name)!r}, not {value!r}"
            for name, value in (each.fields or {}).items()
            if not contains(events[position].get(name), value)
        ]
        start = position + 1
    return found
