# SPDX-License-Identifier: MIT
"""Families whose calls are XML-like elements; values are text, typed by the tool's schema."""

from __future__ import annotations

from collections.abc import Callable

from tests.parity.corpus.forms import PARIS, Arguments, Form, Said, cases, enclosed, json_text, repeated
from tests.parity.entries import LONG, Family, Raw

THINK = ("<think>", "</think>")
TOOL_CALL = ("<tool_call>", "</tool_call>")
ARGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
OPENED = ("", "\n</think>\n\n")  # the prompt has the opening tag


def qwen_call(around: str = "") -> Callable[[Said], str]:
    """Qwen3-Coder's elements; what stands around a value differs between the families that took them over."""

    def write(call: Said) -> str:
        parameters = "".join(
            f"<parameter={key}>{around}{json_text(value)}{around}</parameter>\n" for key, value in call[1].items()
        )
        return f"<function={call[0]}>\n{parameters}</function>"

    return write


def glm_call(call: Said) -> str:
    """GLM 4.5's, a line for each part."""
    return f"{call[0]}\n{glm_arguments(call[1])}"


def glm_arguments(arguments: Arguments, line: str = "\n") -> str:
    return "".join(
        f"<arg_key>{key}</arg_key>{line}<arg_value>{json_text(value)}</arg_value>{line}"
        for key, value in arguments.items()
    )


# GLM 4.7: the same without the breaks
def glm47_call(call: Said) -> str:
    return f"{call[0]}{glm_arguments(call[1], line='')}"


# MiniMax M2: one <minimax:tool_call> block holds an <invoke> per call.
def invoke(call: Said) -> str:
    parameters = "".join(f'<parameter name="{key}">{json_text(value)}</parameter>\n' for key, value in call[1].items())
    return f'<invoke name="{call[0]}">\n{parameters}</invoke>'


def with_long(form: Form) -> dict[str, Raw]:
    long = form.calls(("search", {"query": LONG}))
    return {**cases(form, after=True, own_markup=True), "long arguments": Raw(form.quiet + long)}


# Qwen3-Coder and Qwen3.5
QWEN = Form(repeated("<tool_call>\n", "\n</tool_call>", qwen_call("\n")), thought=OPENED)
FAMILIES = (
    Family(
        "qwen3_xml",
        "qwen3_xml",
        "qwen3",
        with_long(QWEN) | {"call without its end": Raw(QWEN.calls(PARIS).removesuffix("\n</tool_call>"))},
        markup_tokens=(*THINK, *TOOL_CALL),
        generation_prompt="<think>\n{% if not thinking %}\n</think>\n\n{% endif %}",
    ),
    Family(
        "glm45",
        "glm45",
        "glm45",
        cases(
            Form(repeated("<tool_call>", "</tool_call>", glm_call), thought=("\n<think>", "\n</think>\n\n")),
            after=True,
            own_markup=True,
        ),
        markup_tokens=(*THINK, *TOOL_CALL, *ARGS),
        generation_prompt="{% if not thinking %}\n<think></think>\n{% endif %}",
    ),
    Family(
        "glm47",
        "glm47",
        "glm47",
        with_long(Form(repeated("<tool_call>", "</tool_call>", glm47_call, separator=""), thought=OPENED)),
        markup_tokens=(*THINK, *TOOL_CALL, *ARGS),
        generation_prompt="{% if thinking %}<think>{% else %}</think>{% endif %}",
    ),
    Family(
        "minimax_m2",
        "minimax_m2",
        "minimax_m2",
        with_long(
            Form(
                enclosed("<minimax:tool_call>\n", "\n</minimax:tool_call>", invoke),
                thought=OPENED,
                quiet="</think>\n\n",
            )
        ),
        markup_tokens=(*THINK, "<minimax:tool_call>", "</minimax:tool_call>"),
        generation_prompt="<think>\n",
    ),
)
