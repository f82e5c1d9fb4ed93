# SPDX-License-Identifier: MIT
"""The thinking switch has two names: Qwen and GLM templates say `enable_thinking`, DeepSeek and Kimi `thinking`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = ("enable_thinking", "thinking")


def under_both_names(template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """`template_kwargs` with the switch under the other name too, where only one is given.

    vLLM's parsers take either; a name the template does not know is dropped by vLLM.
    """
    given = [name for name in NAMES if name in template_kwargs]
    if len(given) != 1:
        return dict(template_kwargs)
    return {**template_kwargs, **dict.fromkeys(NAMES, template_kwargs[given[0]])}
