# SPDX-License-Identifier: MIT
"""The corpus on the vLLM that is installed: what is left out there, by name and with the reason, and what is other.

The corpus is written for the newest family of vLLM (vllm_engine.bindings.families). Nothing is left out of that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from chatdelta import BackendFailure
from tests.parity.entries import BARE_JSON, Family
from vllm_engine.bindings.families import NEWEST, PARSER_BEFORE
from vllm_engine.bindings.families import Family as VllmFamily
from vllm_engine.bindings.probing import require_family
from vllm_engine.installation import find_installation

# Parsers whose forced calls an older vLLM holds to the family's own markup, as the newest does; all others' to JSON.
OWN_MARKUP: Mapping[str, frozenset[str]] = MappingProxyType(
    {"0.18": frozenset(), "0.22": frozenset({"glm45", "glm47"})}
)

# Families of the corpus for which it does by a grammar of vLLM's own that the newest has no more.
OWN_GRAMMAR: Mapping[str, frozenset[str]] = MappingProxyType({"0.18": frozenset(), "0.22": frozenset({"mistral_v13"})})

# Entries of forced calls in the family's own markup: those that have the same text.
SAME_MARKUP = {
    "required calls": "parallel calls",
    "required call cut": "call cut by max_tokens",
    "named call": "one call",
    "named call cut": "call cut by max_tokens",
}

WHOLE_ONLY = "its native parser says a call when it is whole: of one that is cut nothing is known"
TEXT_ONLY = "its native parser takes the arguments in <escape> only and drops the others"
OBJECT_AS_TEXT = "its native parser gives an object among the arguments as text"
MARKUP_SAID = "its native parser says markup as text while it streams"
SINGLE = (
    *("one call", "call without arguments", "unicode and braces", "markup in arguments"),
    *("call cut by max_tokens", "stop string in a call", "text before a call"),
)
CUT_CALLS = ("call cut by max_tokens", "second call cut", "stop string in a call")


def named(families: tuple[str, ...], cases: tuple[str, ...], reason: str) -> dict[str, str]:
    return {f"{family}: {case}": reason for family in families for case in cases}


TYPED = (
    *("one call", "parallel calls", "unicode and braces", "second call cut", "one call at most"),
    *("text before a call", "stop string that never comes"),
)
BEFORE_026: Mapping[str, str] = {
    **named(("functiongemma",), TYPED, TEXT_ONLY),
    "step3: unicode and braces": OBJECT_AS_TEXT,
}
# vLLM family: {entry: what its native parser does there}
EXCLUDED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "0.18": {
            **BEFORE_026,
            **named(("minimax_m2",), CUT_CALLS, WHOLE_ONLY),
            **named(("gigachat3",), (*SINGLE, "one call of 3.1"), MARKUP_SAID),
            **named(("mistral_v13",), (*SINGLE, "parallel calls", "second call cut", "one call at most"), MARKUP_SAID),
        },
        "0.22": {**BEFORE_026, **named(("deepseek_v32", "deepseek_v4", "minimax_m2"), CUT_CALLS, WHOLE_ONLY)},
    }
)


@cache
def installed() -> VllmFamily:
    """The family of the installed vLLM; the newest where there is none, so that the corpus can be looked at."""
    try:
        return require_family(find_installation(), allow_untested=True)
    except BackendFailure:
        return NEWEST


def adapted(family: Family) -> Family:
    """A family of the corpus with the entries that the installed vLLM can be asked."""
    vllm = installed()
    family = with_parser_before(family, vllm)
    if lacking(family, vllm):
        return replace(family, raws={})
    excluded = EXCLUDED.get(vllm.name, {})
    raws = {case: raw for case, raw in family.raws.items() if f"{family.name}: {case}" not in excluded}
    if vllm is NEWEST:
        return replace(family, raws=raws)
    if family.name in OWN_GRAMMAR[vllm.name]:
        raws |= {case: replace(raws[case], text=raws[other].text) for case, other in SAME_MARKUP.items()}
    elif family.tool_parser not in OWN_MARKUP[vllm.name]:
        quiet = common_start(family.raws["text only"].text, family.raws["one call"].text) if "one call" in raws else ""
        raws |= {case: replace(raw, text=quiet + raw.text) for case, raw in BARE_JSON.items() if case in raws}
    return replace(family, raws=raws)


def common_start(first: str, second: str) -> str:
    """What both begin with: the reasoning that a model without any leaves empty."""
    pairs = zip(first, second, strict=False)
    return first[: next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))]


def left_out(families: tuple[Family, ...]) -> Iterator[tuple[str, str]]:
    """(entry, or family where it is all of them; reason) of what `adapted` takes away."""
    vllm = installed()
    for family in families:
        if parser := lacking(with_parser_before(family, vllm), vllm):
            yield family.name, f"vLLM {vllm.name} has no {parser}"
    yield from EXCLUDED.get(vllm.name, {}).items()


def with_parser_before(family: Family, vllm: VllmFamily) -> Family:
    if family.reasoning_parser in PARSER_BEFORE and family.reasoning_parser in vllm.lacks_reasoning_parsers:
        return replace(family, reasoning_parser=PARSER_BEFORE[family.reasoning_parser])
    return family


def lacking(family: Family, vllm: VllmFamily) -> str:
    """The parser of a family of the corpus that a vLLM lacks, if any."""
    if family.tool_parser in vllm.lacks_tool_parsers:
        return f"tool parser {family.tool_parser}"
    if family.reasoning_parser in vllm.lacks_reasoning_parsers:
        return f"reasoning parser {family.reasoning_parser}"
    return ""
