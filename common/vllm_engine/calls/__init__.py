# SPDX-License-Identifier: MIT
"""Tool calls out of the content part of an answer, one reader per wire form.

vLLM's own parsers are used wherever they are exact when fed one token at a time. Families whose parser was measured to
lose, repeat or invent something (docs/parity.md) have a reader of their own here, made for streaming.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from vllm_engine.calls.json_reader import HERMES, LLAMA, MISTRAL, PHI4, REQUIRED, XLAM, JsonCalls, JsonFormat
from vllm_engine.calls.marked_reader import DEEPSEEK_V3, DEEPSEEK_V31, MISTRAL_V11, MarkedCalls, MarkedFormat
from vllm_engine.calls.native import CumulativeCalls, EngineCalls
from vllm_engine.calls.python_reader import PythonCalls
from vllm_engine.calls.sink import CallReader, Sink

Maker = Callable[[Sink, Collection[str]], CallReader]


def _json(form: JsonFormat) -> Maker:
    return lambda sink, names: JsonCalls(sink, form, names)


def _marked(form: MarkedFormat) -> Maker:
    return lambda sink, names: MarkedCalls(sink, form)


def _python(open_tag: str = "", close_tag: str = "") -> Maker:
    return lambda sink, names: PythonCalls(sink, names, open_tag=open_tag, close_tag=close_tag)


# tool parser name → our reader for its wire form; `mistral` is the form before v11
READERS: Mapping[str, Maker] = MappingProxyType(
    {
        "hermes": _json(HERMES),
        "granite4": _json(HERMES),
        "llama3_json": _json(LLAMA),
        "llama4_json": _json(LLAMA),
        "phi4_mini_json": _json(PHI4),
        "xlam": _json(XLAM),
        "mistral": _json(MISTRAL),
        "mistral_v11": _marked(MISTRAL_V11),
        "deepseek_v3": _marked(DEEPSEEK_V3),
        "deepseek_v31": _marked(DEEPSEEK_V31),
        "pythonic": _python(),
        "llama4_pythonic": _python("<|python_start|>", "<|python_end|>"),
        "required": _json(REQUIRED),
    }
)

__all__ = ["READERS", "CallReader", "CumulativeCalls", "EngineCalls", "Sink"]
