# SPDX-License-Identifier: MIT
"""Families whose calls are XML-like elements; values are text, typed by the tool's schema."""

from __future__ import annotations

from collections.abc import Mapping

from tests.parity.entries import LONG, STOP, Family, Raw, constrained

TEXT = "Paris, naïvely: 日本語 🎉 {braces}, 1 < 2 > 0 and [x]."
QUERY = 'say "hi" {a: [1]} 日本語 🎉'
FILTERS = '{"tags": ["x", "y}"], "deep": {"k": null}}'

# Qwen3-Coder and Qwen3.5: <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
QWEN_PARIS = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    "</function>\n</tool_call>"
)
QWEN_TOKYO = "<tool_call>\n<function=get_weather>\n<parameter=city>\nTokyo\n</parameter>\n</function>\n</tool_call>"
QWEN = {
    "one call": Raw(QWEN_PARIS),
    "parallel calls": Raw(f"{QWEN_PARIS}\n{QWEN_TOKYO}"),
    "long arguments": Raw(
        f"<tool_call>\n<function=search>\n<parameter=query>\n{LONG}\n</parameter>\n</function>\n</tool_call>"
    ),
    "call without its end": Raw(QWEN_PARIS.removesuffix("\n</tool_call>")),
    "call without arguments": Raw("<tool_call>\n<function=get_time>\n</function>\n</tool_call>"),
    "unicode and braces": Raw(
        f"<tool_call>\n<function=search>\n<parameter=query>\n{QUERY}\n</parameter>\n<parameter=limit>\n5\n</parameter>\n"
        f"<parameter=filters>\n{FILTERS}\n</parameter>\n</function>\n</tool_call>"
    ),
    "call cut by max_tokens": Raw("<tool_call>\n<function=get_weather>\n<parameter=city>\nPar", cut=True),
    "second call cut": Raw(f"{QWEN_PARIS}\n<tool_call>\n<function=get_weather>\n<parameter=city>\nTok", cut=True),
    "stop string in a call": Raw(
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nENOUGH\n</parameter>\n</function>\n</tool_call>",
        stop=STOP,
    ),
}

# GLM 4.5: <tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>; 4.7 without the breaks.
GLM45_PARIS = (
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
)
GLM45_TOKYO = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Tokyo</arg_value>\n</tool_call>"
GLM45 = {
    "one call": Raw(GLM45_PARIS),
    "parallel calls": Raw(f"{GLM45_PARIS}\n{GLM45_TOKYO}"),
    "call without arguments": Raw("<tool_call>get_time\n</tool_call>"),
    "unicode and braces": Raw(
        f"<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>{QUERY}</arg_value>\n<arg_key>limit</arg_key>\n"
        f"<arg_value>5</arg_value>\n<arg_key>filters</arg_key>\n<arg_value>{FILTERS}</arg_value>\n</tool_call>"
    ),
    "call cut by max_tokens": Raw("<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Par", cut=True),
    "second call cut": Raw(f"{GLM45_PARIS}\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Tok", cut=True),
    "stop string in a call": Raw(
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>ENOUGH</arg_value>\n</tool_call>", stop=STOP
    ),
}
GLM47_PARIS = (
    "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value>"
    "<arg_key>days</arg_key><arg_value>2</arg_value></tool_call>"
)
GLM47_TOKYO = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Tokyo</arg_value></tool_call>"
GLM47 = {
    "one call": Raw(GLM47_PARIS),
    "parallel calls": Raw(f"{GLM47_PARIS}{GLM47_TOKYO}"),
    "long arguments": Raw(f"<tool_call>search<arg_key>query</arg_key><arg_value>{LONG}</arg_value></tool_call>"),
    "call without arguments": Raw("<tool_call>get_time</tool_call>"),
    "unicode and braces": Raw(
        f"<tool_call>search<arg_key>query</arg_key><arg_value>{QUERY}</arg_value><arg_key>limit</arg_key>"
        f"<arg_value>5</arg_value><arg_key>filters</arg_key><arg_value>{FILTERS}</arg_value></tool_call>"
    ),
    "call cut by max_tokens": Raw("<tool_call>get_weather<arg_key>city</arg_key><arg_value>Par", cut=True),
    "second call cut": Raw(f"{GLM47_PARIS}<tool_call>get_weather<arg_key>city</arg_key><arg_value>Tok", cut=True),
    "stop string in a call": Raw(
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>ENOUGH</arg_value></tool_call>", stop=STOP
    ),
}

# MiniMax M2: one <minimax:tool_call> block holds an <invoke> per call.
INVOKE_PARIS = (
    '<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
    '<parameter name="days">2</parameter>\n</invoke>\n'
)
INVOKE_TOKYO = '<invoke name="get_weather">\n<parameter name="city">Tokyo</parameter>\n</invoke>\n'
MINIMAX_PARIS = f"<minimax:tool_call>\n{INVOKE_PARIS}</minimax:tool_call>"
MINIMAX_BOTH = f"<minimax:tool_call>\n{INVOKE_PARIS}{INVOKE_TOKYO}</minimax:tool_call>"
MINIMAX = {
    "one call": Raw(MINIMAX_PARIS),
    "parallel calls": Raw(MINIMAX_BOTH),
    "long arguments": Raw(
        f'<minimax:tool_call>\n<invoke name="search">\n<parameter name="query">{LONG}</parameter>\n'
        "</invoke>\n</minimax:tool_call>"
    ),
    "call without arguments": Raw('<minimax:tool_call>\n<invoke name="get_time">\n</invoke>\n</minimax:tool_call>'),
    "unicode and braces": Raw(
        f'<minimax:tool_call>\n<invoke name="search">\n<parameter name="query">{QUERY}</parameter>\n'
        f'<parameter name="limit">5</parameter>\n<parameter name="filters">{FILTERS}</parameter>\n'
        "</invoke>\n</minimax:tool_call>"
    ),
    "call cut by max_tokens": Raw(
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Par', cut=True
    ),
    "second call cut": Raw(
        f'<minimax:tool_call>\n{INVOKE_PARIS}<invoke name="get_weather">\n<parameter name="city">Tok', cut=True
    ),
    "stop string in a call": Raw(
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">ENOUGH</parameter>\n'
        "</invoke>\n</minimax:tool_call>",
        stop=STOP,
    ),
}


def with_thinking(calls: Mapping[str, Raw], one: str, both: str, *, opened: str, quiet: str = "") -> dict[str, Raw]:
    """The cases around `calls`: `opened` starts the reasoning, `quiet` is said first where none is wanted."""
    plain = {
        "text only": Raw(TEXT),
        "text before a call": Raw(f"Let me look.\n{one}"),
        "text around a call": Raw(f"Let me look. {one}Done."),
        "markup cut by max_tokens": Raw("Well <", cut=True),
        "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
        "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
        "one call at most": Raw(both, body={"parallel_tool_calls": False}),
        **calls,
        **constrained(one, both, calls["call cut by max_tokens"].text),
    }
    unthinking = {
        case: Raw(quiet + raw.text, raw.cut, raw.stop, raw.thinking, raw.expected, raw.body)
        for case, raw in plain.items()
    }
    return {
        **unthinking,
        "reasoning": Raw(f"{opened}Two and two.\nThat is four.\n</think>\n\n2 + 2 = 4.", thinking=True),
        "call after reasoning": Raw(f"{opened}I need the weather.\n</think>\n\n{one}", thinking=True),
        "reasoning without tools": Raw(
            f"{opened}Two and two.\nThat is four.\n</think>\n\n2 + 2 = 4.", thinking=True, body={"tools": None}
        ),
        "reasoning not wanted": Raw(
            f"{opened}Two and two.\n</think>\n\n2 + 2 = 4.", thinking=True, body={"include_reasoning": False}
        ),
        "reasoning cut by max_tokens": Raw(f"{opened}I am still thin", cut=True, thinking=True),
        "stop string after reasoning": Raw(
            f"{opened}Two and two.\n</think>\n\nIt is 4 ENOUGH or so", stop=STOP, thinking=True
        ),
        "stop string that never comes": Raw(
            f"{opened}I need the weather.\n</think>\n\n{both}", stop=STOP, thinking=True
        ),
    }


THINK = ("<think>", "</think>")
TOOL_CALL = ("<tool_call>", "</tool_call>")
ARGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
FAMILIES = (
    Family(
        "qwen3_xml",
        "qwen3_xml",
        "qwen3",
        with_thinking(QWEN, QWEN_PARIS, f"{QWEN_PARIS}\n{QWEN_TOKYO}", opened=""),
        markup_tokens=(*THINK, *TOOL_CALL),
        generation_prompt="<think>\n{% if not thinking %}\n</think>\n\n{% endif %}",
    ),
    Family(
        "glm45",
        "glm45",
        "glm45",
        with_thinking(GLM45, GLM45_PARIS, f"{GLM45_PARIS}\n{GLM45_TOKYO}", opened="\n<think>"),
        markup_tokens=(*THINK, *TOOL_CALL, *ARGS),
        generation_prompt="{% if not thinking %}\n<think></think>\n{% endif %}",
    ),
    Family(
        "glm47",
        "glm47",
        "glm47",
        with_thinking(GLM47, GLM47_PARIS, f"{GLM47_PARIS}{GLM47_TOKYO}", opened=""),
        markup_tokens=(*THINK, *TOOL_CALL, *ARGS),
        generation_prompt="{% if thinking %}<think>{% else %}</think>{% endif %}",
    ),
    Family(
        "minimax_m2",
        "minimax_m2",
        "minimax_m2",
        with_thinking(MINIMAX, MINIMAX_PARIS, MINIMAX_BOTH, opened="", quiet="</think>\n\n"),
        markup_tokens=(*THINK, "<minimax:tool_call>", "</minimax:tool_call>"),
        generation_prompt="<think>\n",
    ),
)
