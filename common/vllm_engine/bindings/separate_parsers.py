# SPDX-License-Identifier: MIT
"""vLLM 0.18 and 0.22 have no unified parser that serves a chat from end to end: here their two parsers are one object.

(0.22 has a beginning of one, but keeps the classes of all its models in a single place.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from openai_harmony import StreamableParser
from vllm.entrypoints.openai.chat_completion.stream_harmony import TokenState, extract_harmony_streaming_delta
from vllm.entrypoints.openai.parser.harmony_utils import get_streamable_parser_for_assistant
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager

from vllm_engine.parser_pair import take_tools
from vllm_engine.spec import EngineSpec

CONSTRAIN = "<|constrain|>"  # older harmony takes it and what follows for a part of the recipient


class SeparateParsers:
    """The native parsers of one choice."""

    reasoning_parser_cls: ClassVar[Any] = None
    tool_parser_cls: ClassVar[Any] = None
    knows_model: ClassVar[bool] = False  # whether a reasoning parser takes model_config=

    def __init__(self, tokenizer: Any, tools: Any, *, chat_template_kwargs: Any, model_config: Any) -> None:
        model = {"model_config": model_config} if self.knows_model else {}
        reasoning, calls = self.reasoning_parser_cls, self.tool_parser_cls
        self.reasoning_parser = (
            None if reasoning is None else reasoning(tokenizer, chat_template_kwargs=chat_template_kwargs, **model)
        )
        self.tool_parser = None if calls is None else calls(tokenizer, tools)


class HarmonyTokens(SeparateParsers):
    """gpt-oss: its tokens are read as vLLM's own server does, with its function for one delta."""

    def __init__(self, tokenizer: Any, tools: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, tools, **kwargs)
        self._parser: StreamableParser = get_streamable_parser_for_assistant()

    def parse_delta(
        self, _text: str, token_ids: Sequence[int], request: Any, _prompt_token_ids: Any, *, finished: bool
    ) -> Any:
        """vLLM's DeltaMessage, or None."""
        before = _recipient(self._parser)
        states = []
        for token_id in token_ids:
            self._parser.process(token_id)
            text = self._parser.last_content_delta or ""
            states.append(TokenState(self._parser.current_channel, _recipient(self._parser), text))
        shows_reasoning = self.reasoning_parser is not None and request.include_reasoning
        message, _ = extract_harmony_streaming_delta(self._parser, states, before, shows_reasoning)
        return message


def _recipient(parser: StreamableParser) -> str | None:
    recipient: str | None = parser.current_recipient
    return recipient and (recipient.partition(CONSTRAIN)[0].rstrip() or None)


def separate_parsers(spec: EngineSpec, model_config: Any, *, knows_model: bool) -> type[SeparateParsers] | None:
    """The class for what `spec` names; None where that is nothing."""
    if spec.tool_parser is None and spec.reasoning_parser is None:
        return None
    base = HarmonyTokens if model_config.hf_config.model_type == "gpt_oss" else SeparateParsers
    calls, reasoning = spec.tool_parser, spec.reasoning_parser
    made = type(
        "Parsers",
        (base,),
        {
            "tool_parser_cls": None if calls is None else ToolParserManager.get_tool_parser(calls),
            "reasoning_parser_cls": (
                None if reasoning is None else ReasoningParserManager.get_reasoning_parser(reasoning)
            ),
            "knows_model": knows_model,
        },
    )
    take_tools(made)
    return made
