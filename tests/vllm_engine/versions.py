# SPDX-License-Identifier: MIT
"""What the tests here ask of an older vLLM otherwise; the rows themselves are written for the newest."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tests.parity.corpus.versions import installed
from vllm_engine.bindings.families import NEWEST

IS_NEWEST = installed() is NEWEST

# Fields of the newest request model that an older one has not.
_NOT_OFFERED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "0.18": frozenset(
            {
                *("logprob_token_ids", "thinking_token_budget", "truncation_side"),
                *("return_token_offsets", "return_prompt_text", "ec_transfer_params", "return_assistant_tokens_mask"),
            }
        ),
        "0.22": frozenset(
            {"logprob_token_ids", "return_token_offsets", "ec_transfer_params", "return_assistant_tokens_mask"}
        ),
    }
)
NOT_OFFERED = _NOT_OFFERED.get(installed().name, frozenset())
