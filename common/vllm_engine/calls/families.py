# SPDX-License-Identifier: MIT
"""How each family's native tool parser is driven, where feeding it the answer as it comes is not right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vllm_engine.calls.completed_calls import NO_VALUE, Notation
from vllm_engine.calls.gemma import keep_bare_values
from vllm_engine.calls.native import CumulativeCalls, EngineCalls, whole_calls
from vllm_engine.calls.one_line import OneLineJson
from vllm_engine.calls.python_calls import python_calls
from vllm_engine.calls.segments import Markers, Segments
from vllm_engine.calls.sink import CallReader, Sink
from vllm_engine.calls.step import keep_arguments
from vllm_engine.calls.translated import Translated


def named(begin: str, end: str) -> Callable[[Any], Markers]:
    """Markers that the native parser has as attributes of these names."""
    return lambda native: Markers((getattr(native, begin),), (getattr(native, end),))


def llama(native: Any) -> Markers:
    return Markers((native.bot_token,), (";",), bare="{")


# Families whose calls stand between markers, and whose native streaming `make parity` found to lose or garble calls
# or the text around them. The markers are the native parser's own, where it says them.
MARKERS: Mapping[str, Callable[[Any], Markers]] = {
    "hermes": named("tool_call_start_token", "tool_call_end_token"),
    "longcat": named("tool_call_start_token", "tool_call_end_token"),
    "ernie45": lambda native: Markers(
        (native.tool_call_start_token,),
        (native.tool_call_end_token,),
        ignored=(native.response_start_token, native.response_end_token),
    ),
    "jamba": named("tool_calls_start_token", "tool_calls_end_token"),
    "granite4": named("tc_start", "tc_end"),
    "hunyuan_a13b": lambda native: Markers((native.bot_string,), ("</tool_calls>",)),
    "apertus": lambda native: Markers(("<|tools_prefix|>",), ("<|tools_suffix|>",)),
    "granite-20b-fc": lambda native: Markers((native.bot_token,)),
    "internlm": lambda native: Markers(("<|action_start|><|plugin|>",), ("<|action_end|>",)),
    "phi4_mini_json": lambda native: Markers((native.bot_token,)),
    "xlam": lambda native: Markers(
        ("```json", "```", "[TOOL_CALLS]", "<tool_call>"), ("```", "</tool_call>"), only_calls=False, bare="["
    ),
    "granite": lambda native: Markers((native.bot_token, native.bot_string), bare="["),
    "llama3_json": llama,
    "llama4_json": llama,
    "pythonic": lambda native: Markers((), bare="[", notation=Notation.PYTHON),
    "llama4_pythonic": lambda native: Markers(
        ("<|python_start|>",), ("<|python_end|>",), bare="[", notation=Notation.PYTHON
    ),
    "lfm2": lambda native: Markers(("<|tool_call_start|>",), ("<|tool_call_end|>",), notation=Notation.PYTHON),
}
# What begins a marker can stand only in the strings of JSON, and there an escape is the same.
ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in NO_VALUE}
# FunctionGemma writes Gemma 4's calls with other words. Of such arguments its own parser finds only text, and no deeper
# than the first level, so Gemma 4's reads them.
FUNCTION_GEMMA = {
    "<start_function_call>": "<|tool_call>",
    "<end_function_call>": "<tool_call|>",
    "<escape>": '<|"|>',
}
# Engine-based from 0.26. Before, they complete a call that was cut, and some lose the text behind the last call.
TAGS = ("<tool_call>", "</tool_call>")
XML: Mapping[str, tuple[str, str]] = {
    "qwen3_xml": TAGS,
    "qwen3_coder": TAGS,
    "mimo": TAGS,
    "seed_oss": ("<seed:tool_call>", "</seed:tool_call>"),
    "minimax_m2": ("<minimax:tool_call>", "</minimax:tool_call>"),
    "functiongemma": ("<start_function_call>", "<end_function_call>"),
}
# Of these, whose streaming gives every argument as text.
UNTYPED = frozenset({"seed_oss"})
# Their regular expressions end the arguments at a line break.
ONE_LINE = frozenset({"deepseek_v3", "deepseek_v31"})


def native_calls(family: str, sink: Sink, native: Any, tokenizer: Any, request: Any) -> CallReader:
    """The reader of the calls of `family` by `native`, its tool parser; `request` is a ChatCompletionRequest."""
    if family in MARKERS:
        markers = MARKERS[family](native)
        names = {tool.function.name for tool in request.tools}
        return Segments(sink, markers, _parse(family, native, markers, request), names)
    if family == "functiongemma" and is_engine_based("gemma4"):
        return Translated(native_calls("gemma4", sink, _gemma4(tokenizer, request), tokenizer, request), FUNCTION_GEMMA)
    if family == "gemma4" and is_engine_based("gemma4"):
        keep_bare_values(native)
    if family == "step3":
        keep_arguments(native)
    if getattr(native, "engine_based_streaming", False):
        return EngineCalls(sink, native, request)
    if family == "seed_oss":
        native.is_thinking_end = True  # it gets no reasoning here, whose end it would wait for
    reader = CumulativeCalls(
        sink,
        native,
        lambda: type(native)(tokenizer, request.tools),
        request,
        ends=XML.get(family),
        is_typed=family not in UNTYPED,
    )
    return OneLineJson(reader, native.tool_call_start_token) if family in ONE_LINE else reader


def is_engine_based(family: str) -> bool:
    """Whether this vLLM's own parser of `family` is: from 0.26 many are, before none."""
    from vllm.tool_parsers import ToolParserManager

    try:
        return bool(getattr(ToolParserManager.get_tool_parser(family), "engine_based_streaming", False))
    except KeyError:
        return False


def native_text(family: str, sink: Sink, native: Any, request: Any) -> CallReader | None:
    """The reader of answers of `family` that make no calls; None where their text has no markup."""
    return EngineCalls(sink, native, request, may_call=False) if family == "inkling" else None


def _parse(family: str, native: Any, markers: Markers, request: Any) -> Callable[[str], Any]:
    """The family's whole-text parse of what stands between its markers."""
    if markers.notation is Notation.PYTHON:
        return python_calls
    begin, end = markers.begin[0], "".join(markers.end[:1])
    if family == "phi4_mini_json":
        # Its own regular expression ends the list at the first bracket, wherever that is. Llama's parse reads call
        # objects in any text, and takes "parameters" for "arguments" as Phi's does.
        native, begin = _objects_parser(native), ""
    elif markers.bare:
        begin, end = "", ""

    return lambda json_text: whole_calls(native, f"{begin}{json_text.translate(ESCAPED)}{end}", request, lenient=True)


def _gemma4(tokenizer: Any, request: Any) -> Any:
    from vllm.tool_parsers import ToolParserManager

    return ToolParserManager.get_tool_parser("gemma4")(tokenizer, request.tools)


def _objects_parser(native: Any) -> Any:
    from vllm.tool_parsers import ToolParser
    from vllm.tool_parsers.llama_tool_parser import Llama3JsonToolParser

    class ObjectsParser(Llama3JsonToolParser):  # type: ignore[misc]
        def __init__(self, tokenizer: Any) -> None:
            if hasattr(Llama3JsonToolParser, "json_decoder"):
                ToolParser.__init__(self, tokenizer)  # Llama's own wants <|python_tag|> in the vocabulary
            else:  # 0.18: it wants nothing, and has what it parses with in the object
                super().__init__(tokenizer)

    return ObjectsParser(native.model_tokenizer)
