# SPDX-License-Identifier: MIT
"""What a load gets where it leaves something unset: hooks, each naming defaults, in the shape of LocalAI's own.

A hook belongs to a backend name, or to `*` for every load. Those of `*` come first, then those of the load's own name,
each group in the order of HOOKS. The first to name a default wins, and what the load says itself always does. The name
is empty for a load of the command line, where nobody named a backend.

LocalAI's hook for vLLM also switches prefix caching and chunked prefill on. Here no hook does: vLLM does that by itself
for every model that supports them, and would obey an order to do it for those that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_nnrp.parser_defaults import table

EVERY = "*"
BACKEND = "vllm-nnrp"  # what LocalAI calls us


@dataclass(frozen=True, slots=True)
class Load:
    """A load as hooks see it. `said` are the engine arguments and options it sets itself, whatever their values."""

    references: tuple[str, ...]  # the names its model may be known by, best first
    said: frozenset[str] = frozenset()
    generates: bool = True  # text, not embeddings or relevance
    on_cpu: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A value, and why it is this one."""

    value: Any
    source: str
    is_default: bool = False

    def __str__(self) -> str:
        return f"{'none' if self.value is None else self.value} ({self.source})"


Hook = Callable[[Load], Mapping[str, Choice]]


def family_parsers(load: Load) -> Mapping[str, Choice]:
    """The parsers of the model's family."""
    pattern = table().match(load.references) if load.generates else None
    if pattern is None:
        return {}
    family = table().families[pattern]
    halves = {"tool_parser": family.tool_parser, "reasoning_parser": family.reasoning_parser}
    source = f"default of the family {pattern}"
    return {half: Choice(name, source, is_default=name is not None) for half, name in halves.items()}


def eager_on_cpu(load: Load) -> Mapping[str, Choice]:
    """No compiling on a CPU: it takes a C++ compiler and a minute at each start, and gains little."""
    return {"enforce_eager": Choice(True, "default on a CPU", is_default=True)} if load.on_cpu else {}


HOOKS: tuple[tuple[str, Hook], ...] = (
    (EVERY, family_parsers),
    (EVERY, eager_on_cpu),
)


def defaults_for(load: Load, backend: str, hooks: Sequence[tuple[str, Hook]] = HOOKS) -> dict[str, Choice]:
    """The defaults of everything `load` leaves unset and a hook has a word on."""
    found: dict[str, Choice] = {}
    for owner in dict.fromkeys((EVERY, backend)):
        for hook in (hook for name, hook in hooks if name == owner):
            for name, choice in hook(load).items():
                if name not in load.said:
                    found.setdefault(name, choice)
    return found
