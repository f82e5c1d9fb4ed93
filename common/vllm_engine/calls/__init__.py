# SPDX-License-Identifier: MIT
"""Tool calls out of the content part of an answer: vLLM's own tool parsers, and the bare JSON of forced calls."""

from vllm_engine.calls.bare_json import NamedArguments, RequiredCalls
from vllm_engine.calls.families import native_calls, native_text
from vllm_engine.calls.sink import CallReader, Said, Sink

__all__ = ["CallReader", "NamedArguments", "RequiredCalls", "Said", "Sink", "native_calls", "native_text"]
