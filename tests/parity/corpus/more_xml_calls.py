# SPDX-License-Identifier: MIT
"""Families beyond the common ones whose calls are XML-like elements."""

from __future__ import annotations

from dataclasses import replace

from tests.parity.corpus import xml_calls
from tests.parity.corpus.forms import Form, Said, cases, enclosed, json_text, repeated
from tests.parity.corpus.xml_calls import ARGS, THINK, TOOL_CALL, glm_arguments, glm_call, qwen_call
from tests.parity.entries import Family

BY_NAME = {family.name: family for family in xml_calls.FAMILIES}


# DeepSeek V3.2 and V4: DSML, one token inside every tag; the model says which values are text.
def dsml_call(call: Said) -> str:
    parameters = "".join(
        f'<｜DSML｜parameter name="{key}" string="{str(isinstance(value, str)).lower()}">{json_text(value)}'
        "</｜DSML｜parameter>\n"
        for key, value in call[1].items()
    )
    return f'<｜DSML｜invoke name="{call[0]}">\n{parameters}</｜DSML｜invoke>'


def dsml(block: str, thought: tuple[str, str]) -> Form:
    calls = enclosed(f"\n\n<｜DSML｜{block}>\n", f"\n</｜DSML｜{block}>", dsml_call)
    return Form(calls, thought=thought)


# Hunyuan 3: a token of its own ends the name.
def hunyuan_call(call: Said) -> str:
    return f"<tool_call>{call[0]}<tool_sep>\n{glm_arguments(call[1])}</tool_call>"


# MiniCPM 5: XML proper, so text with characters of XML's own is CDATA.
def minicpm_call(call: Said) -> str:
    arguments = "".join(
        f'<param name="{key}">{minicpm_value(json_text(value))}</param>' for key, value in call[1].items()
    )
    return f'<function name="{call[0]}">{arguments}</function>'


def minicpm_value(text: str) -> str:
    return f"<![CDATA[{text}]]>" if set(text) & set("<&") else text


# Step 3: StepTML inside DeepSeek-like tokens, but with plain underscores.
def step_call(call: Said) -> str:
    parameters = "".join(
        f'<steptml:parameter name="{key}">{json_text(value)}</steptml:parameter>\n' for key, value in call[1].items()
    )
    invoke = f'<steptml:invoke name="{call[0]}">\n{parameters}</steptml:invoke>'
    return f"<｜tool_call_begin｜>function<｜tool_sep｜>{invoke}<｜tool_call_end｜>"


STEP_TOKENS = (
    *("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>"),
    "<｜tool_sep｜>",
)


FAMILIES = (
    Family(
        "deepseek_v32",
        "deepseek_v32",
        "deepseek_v3",
        cases(dsml("function_calls", ("", "</think>")), own_markup=True),
        markup_tokens=(*THINK, "｜DSML｜"),
        generation_prompt="{% if thinking %}<think>{% else %}</think>{% endif %}",
        thinking_kwarg="thinking",
    ),
    Family(
        "deepseek_v4",
        "deepseek_v4",
        "deepseek_v4",
        cases(dsml("tool_calls", ("", "</think>")), own_markup=True),
        markup_tokens=(*THINK, "｜DSML｜"),
        generation_prompt="{% if thinking %}<think>{% else %}</think>{% endif %}",
        thinking_kwarg="thinking",
    ),
    # its thinking is switched by an effort
    Family(
        "hy_v3",
        "hy_v3",
        "hy_v3",
        cases(
            Form(enclosed("<tool_calls>\n", "\n</tool_calls>", hunyuan_call), thought=THINK),
        ),
        markup_tokens=(*THINK, "<tool_calls>", "</tool_calls>", *TOOL_CALL, "<tool_sep>", *ARGS),
        thinking_kwarg="reasoning_effort",
        thinking_values=("no_think", "high"),
    ),
    # MiMo V2: Qwen3-Coder's calls without line breaks around a value
    Family(
        "mimo",
        "mimo",
        "mimo",
        cases(
            Form(repeated("<tool_call>\n", "\n</tool_call>", qwen_call()), thought=("", "</think>")),
            after=True,
            own_markup=True,
        ),
        markup_tokens=(*THINK, *TOOL_CALL),
        generation_prompt="<think>{% if not thinking %}</think>{% endif %}",
    ),
    # the reasoning is cut out by the tool parser itself
    Family(
        "minicpm5",
        "minicpm5",
        None,
        cases(Form(repeated("", "", minicpm_call)), after=True),
        special_tokens=("<function", "</function>", "<param", "</param>"),
    ),
    # Laguna: GLM's calls; the prompt says which way it goes, by one of the two tags
    Family(
        "poolside_v1",
        "poolside_v1",
        "poolside_v1",
        cases(Form(repeated("<tool_call>", "</tool_call>", glm_call), thought=("", "</think>")), own_markup=True),
        markup_tokens=(*THINK, *TOOL_CALL, *ARGS, "<assistant>"),
        generation_prompt="<assistant>\n{% if thinking %}<think>{% else %}</think>{% endif %}",
    ),
    replace(
        BY_NAME["qwen3_xml"],
        name="qwen3_coder",
        tool_parser="qwen3_coder",
        reasoning_parser=None,
        raws={case: raw for case, raw in BY_NAME["qwen3_xml"].raws.items() if not raw.thinking},
        generation_prompt="",
    ),
    # Seed OSS: Qwen's elements in its own tags
    Family(
        "seed_oss",
        "seed_oss",
        "seed_oss",
        cases(
            Form(
                repeated("<seed:tool_call>\n", "\n</seed:tool_call>", qwen_call()),
                thought=("<seed:think>", "</seed:think>"),
            )
        ),
        markup_tokens=("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
        generation_prompt="{% if not thinking %}<seed:think></seed:think>{% endif %}",
    ),
    # Step 3 and 3.5 always think: what needs none begins with the end of an empty reasoning
    Family(
        "step3",
        "step3",
        "step3",
        cases(
            Form(
                enclosed("<｜tool_calls_begin｜>\n", "\n<｜tool_calls_end｜>", step_call),
                thought=("", "\n</think>\n"),
                quiet="</think>\n",
            ),
            after=True,
        ),
        markup_tokens=(*THINK, *STEP_TOKENS),
        generation_prompt="<think>\n",
    ),
    Family(
        "step3p5",
        "step3p5",
        "step3p5",
        cases(
            Form(
                repeated("<tool_call>\n", "\n</tool_call>", qwen_call("\n"), separator=""),
                thought=("", "\n</think>\n"),
                quiet="\n</think>\n",
            ),
        ),
        markup_tokens=(*THINK, *TOOL_CALL),
        generation_prompt="<think>\n",
    ),
)
