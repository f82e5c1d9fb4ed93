# SPDX-License-Identifier: MIT
"""Families beyond the common ones, each with the cases that its format has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.parity.entries import BARE_JSON, STOP, Family, Raw

TEXT = "Paris, naïvely: 日本語 🎉 {braces}, 1 < 2 > 0 and [x]."
QUERY = r'"say \"hi\" {a: [1]} 日本語 🎉"'
SEARCH = f'{{"query": {QUERY}, "limit": 5, "filters": {{"tags": ["x", "y}}"], "deep": {{"k": null}}}}}}'
PARIS = '{"city": "Paris", "days": 2}'
TOKYO = '{"city": "Tokyo"}'


def json_call(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "arguments": {arguments}}}'


def listed(begin: str, end: str, *calls: str) -> str:
    return f"{begin}[{', '.join(calls)}]{end}"


def repeated(begin: str, end: str, *calls: str) -> str:
    return "\n".join(f"{begin}{call}{end}" for call in calls)


def python_lines(begin: str, end: str, *calls: str) -> str:
    return begin + "\n".join(calls) + end


def cases(
    write: Callable[..., str],
    begin: str,
    end: str,
    *,
    call: Callable[[str, str], str] = json_call,
    values: Mapping[str, str] | None = None,
    before: str = "Let me look.",
) -> dict[str, Raw]:
    """`write(begin, end, *calls)` is the family's form for several calls; `before` is text it allows before them."""
    given = {"paris": PARIS, "tokyo": TOKYO, "nothing": "{}", "search": SEARCH, "stop": '{"city": "ENOUGH"}'}
    given |= values or {}
    paris, tokyo = call("get_weather", given["paris"]), call("get_weather", given["tokyo"])
    one, both = write(begin, end, paris), write(begin, end, paris, tokyo)
    raws = {
        "text only": Raw(TEXT),
        "one call": Raw(one),
        "parallel calls": Raw(both),
        "call without arguments": Raw(write(begin, end, call("get_time", given["nothing"]))),
        "unicode and braces": Raw(write(begin, end, call("search", given["search"]))),
        "call cut by max_tokens": Raw(one[: one.index("Paris") + 3], cut=True),
        "second call cut": Raw(both[: both.index("Tokyo") + 3], cut=True),
        "markup cut by max_tokens": Raw("Well <", cut=True),
        "stop string in the text": Raw("First, second, ENOUGH third", stop=STOP),
        "stop string in a call": Raw(write(begin, end, call("get_weather", given["stop"])), stop=STOP),
        "tool_choice none": Raw("No call.", body={"tool_choice": "none"}),
        "one call at most": Raw(both, body={"parallel_tool_calls": False}),
    }
    if before:
        raws["text before a call"] = Raw(f"{before}{one}")
    return raws


PYTHON = {
    "paris": 'city="Paris", days=2',
    "tokyo": 'city="Tokyo"',
    "nothing": "",
    "search": "query='say \"hi\" {a: [1]} 日本語 🎉', limit=5, filters={'tags': ['x', 'y}'], 'deep': {'k': null}}",
    "stop": 'city="ENOUGH"',
}


def python_call(name: str, arguments: str) -> str:
    return f"{name}({arguments})"


def seed_call(name: str, arguments: str) -> str:
    parameters = "".join(f"<parameter={key}>{value}</parameter>\n" for key, value in SEED[arguments].items())
    return f"<function={name}>\n{parameters}</function>"


SEED = {
    "paris": {"city": "Paris", "days": "2"},
    "tokyo": {"city": "Tokyo"},
    "nothing": {},
    "search": {
        "query": 'say "hi" {a: [1]} 日本語 🎉',
        "limit": "5",
        "filters": '{"tags": ["x", "y}"], "deep": {"k": null}}',
    },
    "stop": {"city": "ENOUGH"},
}


def reasoning_only(name: str, opened: str, closed: str = "</think>", *, prompt: str = "") -> Family:
    """A reasoning parser without a tool parser."""
    no_tools = {"tools": None}
    return Family(
        f"reasoning: {name}",
        None,
        name,
        {
            "reasoning": Raw(f"{opened}Two and two.\nThat is four.{closed}2 + 2 = 4.", thinking=True, body=no_tools),
            "reasoning cut by max_tokens": Raw(f"{opened}I am still thin", cut=True, thinking=True, body=no_tools),
            "stop string after reasoning": Raw(
                f"{opened}Two and two.{closed}It is 4 ENOUGH or so", stop=STOP, thinking=True, body=no_tools
            ),
            "reasoning not wanted": Raw(
                f"{opened}Two and two.{closed}2 + 2 = 4.", thinking=True, body={**no_tools, "include_reasoning": False}
            ),
        },
        markup_tokens=("<think>", "</think>", "<seed:think>", "</seed:think>", "<0x0A>"),
        generation_prompt=prompt,
    )


FAMILIES = (
    reasoning_only("deepseek_r1", "", prompt="<think>"),
    reasoning_only("deepseek_v3", "<think>"),
    reasoning_only("nemotron_v3", "", prompt="<think>"),
    # olmo3 wants pieces of its own vocabulary ("Ġ</" and others), so it is not here
    reasoning_only("ernie45", "", prompt="<think>"),
    reasoning_only("seed_oss", "<seed:think>", "</seed:think>"),
    # LongCat: Hermes' calls in its own tags
    Family(
        "longcat",
        "longcat",
        None,
        cases(repeated, "<longcat_tool_call>\n", "\n</longcat_tool_call>"),
        markup_tokens=("<longcat_tool_call>", "</longcat_tool_call>"),
    ),
    # Jamba: <tool_calls>[…]</tool_calls>
    Family(
        "jamba",
        "jamba",
        None,
        {**cases(listed, "<tool_calls>", "</tool_calls>"), **BARE_JSON},
        markup_tokens=("<tool_calls>", "</tool_calls>"),
    ),
    # Hunyuan: the same tags, as plain text
    Family("hunyuan_a13b", "hunyuan_a13b", None, cases(listed, "<tool_calls>", "</tool_calls>")),
    # Granite 3: <|tool_call|>[…], the whole answer
    Family(
        "granite", "granite", None, cases(listed, "<|tool_call|>", "", before=""), special_tokens=("<|tool_call|>",)
    ),
    # InternLM 2: one call only
    Family(
        "internlm",
        "internlm",
        None,
        {
            case: raw
            for case, raw in cases(repeated, "<|action_start|><|plugin|>", "<|action_end|>").items()
            if case not in ("parallel calls", "second call cut", "one call at most")
        },
        special_tokens=("<|action_start|>", "<|action_end|>", "<|plugin|>"),
    ),
    # ERNIE 4.5: Hermes' calls
    Family(
        "ernie45",
        "ernie45",
        None,
        cases(repeated, "<tool_call>\n", "\n</tool_call>\n", before="Let me look.\n"),
        markup_tokens=("<think>", "</think>", "<tool_call>", "</tool_call>", "<response>", "</response>", "<0x0A>"),
    ),
    # OLMo 3: Python calls on lines of their own
    Family(
        "olmo3",
        "olmo3",
        None,
        cases(python_lines, "<function_calls>\n", "\n</function_calls>", call=python_call, values=PYTHON, before=""),
    ),
    # LFM 2: a Python list between two tokens
    Family(
        "lfm2",
        "lfm2",
        None,
        cases(listed, "<|tool_call_start|>", "<|tool_call_end|>", call=python_call, values=PYTHON),
        special_tokens=("<|tool_call_start|>", "<|tool_call_end|>"),
    ),
    # Seed OSS: Qwen's XML in its own tags
    Family(
        "seed_oss",
        "seed_oss",
        None,
        cases(
            repeated,
            "<seed:tool_call>\n",
            "\n</seed:tool_call>",
            call=seed_call,
            values={key: key for key in SEED},
        ),
        markup_tokens=("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
    ),
)
