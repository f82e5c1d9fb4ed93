# SPDX-License-Identifier: MIT
"""Whether a model is to think, said to templates and parsers in both names they know the switch by.

Qwen and GLM templates call it `enable_thinking`, DeepSeek and Kimi `thinking`; a name that a template does not know is
dropped by vLLM, and its parsers take either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = ("enable_thinking", "thinking")


def with_switch(template_kwargs: Mapping[str, Any], effort: object) -> dict[str, Any]:
    """`template_kwargs` with the switch under both names; unchanged where nobody has said anything.

    A `reasoning_effort` of "none" is off, whatever else is said: clients send the same template kwargs with every
    request and the effort with one. Any other effort is on, unless the kwargs say otherwise.
    """
    given = [name for name in NAMES if template_kwargs.get(name) is not None]
    if effort == "none":
        switch: Any = False
    elif len(given) == 1:
        switch = template_kwargs[given[0]]
    elif effort is not None and not given:
        switch = True
    else:
        return dict(template_kwargs)
    return {**template_kwargs, **dict.fromkeys(NAMES, switch)}
