# SPDX-License-Identifier: MIT
"""The corpus: every family with its raw outputs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.parity.corpus import (
    harmony_calls,
    json_calls,
    marker_calls,
    more_calls,
    more_xml_calls,
    python_calls,
    real_tokenizers,
    reasoning,
    xml_calls,
)
from tests.parity.corpus.versions import adapted
from tests.parity.entries import EXPECTED, Entry, Family

FAMILIES: tuple[Family, ...] = (
    *json_calls.FAMILIES,
    *xml_calls.FAMILIES,
    *marker_calls.FAMILIES,
    *python_calls.FAMILIES,
    *harmony_calls.FAMILIES,
    *more_calls.FAMILIES,
    *more_xml_calls.FAMILIES,
    *reasoning.FAMILIES,
    *real_tokenizers.FAMILIES,
)


def entries(families: tuple[Family, ...] = FAMILIES) -> Iterator[Entry]:
    """Those that the installed vLLM can be asked; `versions.left_out` tells of the others."""
    for family in map(adapted, families):
        for case, raw in family.raws.items():
            yield Entry(family, case, raw, raw.expected or EXPECTED[case])
