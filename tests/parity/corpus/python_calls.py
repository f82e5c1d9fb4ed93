# SPDX-License-Identifier: MIT
"""Families whose calls are a Python list of function calls, the whole answer."""

from __future__ import annotations

from tests.parity.corpus.forms import PARIS, SEARCH, TOKYO, Form, Said, cases, listed
from tests.parity.entries import Family, Raw


def python_call(call: Said) -> str:
    return f"{call[0]}({', '.join(f'{key}={python_value(value)}' for key, value in call[1].items())})"


def python_value(value: object) -> str:
    """As Python has it; text in double quotes unless there are some in it."""
    return f'"{value}"' if isinstance(value, str) and '"' not in value else repr(value)


# Llama 3.2, ToolACE: [f(a=1), g(b="x")]
PYTHONIC = cases(Form(listed("", "", python_call)), before=False)
# Llama 4 may put the list between two special tokens.
TAGGED = listed("<|python_start|>", "<|python_end|>", python_call)
FAMILIES = (
    Family("pythonic", "pythonic", None, PYTHONIC),
    Family(
        "llama4_pythonic",
        "llama4_pythonic",
        None,
        {
            **PYTHONIC,
            "one call": Raw(TAGGED(PARIS)),
            "parallel calls": Raw(TAGGED(PARIS, TOKYO)),
            "unicode and braces": Raw(TAGGED(SEARCH)),
        },
        markup_tokens=("<|python_start|>", "<|python_end|>"),
    ),
)
