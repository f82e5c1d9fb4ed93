# SPDX-License-Identifier: MIT
"""What a user asks one of core's endpoints, and the PredictOptions that core makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localai_proto import backend_pb2 as pb

NO_ACTION = "answer"  # the function by whose name core's own grammars let a model say that it calls nothing


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to one of core's endpoints, in OpenAI's terms; core's own defaults where a field is not given.

    `prompt` is a text that core has rendered itself. `tools` goes to the endpoints that have them.
    """

    messages: Sequence[Mapping[str, Any]] = ()
    prompt: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: Any = None
    max_tokens: int = 0
    temperature: float = 0.9
    stop: Sequence[str] = ()
    logprobs: bool = False
    top_logprobs: int | None = None
    logit_bias: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    grammar: str = ""
    seed: int = 1234  # core draws one for each call

    @property
    def expects_calls(self) -> bool:
        """Whether core looks for calls. With `none` it does not, and sends the tools all the same."""
        return bool(self.tools) and self.tool_choice != "none"


def predict_options(ask: Ask) -> pb.PredictOptions:
    """The message core sends for it to a model with the tokenizer's template."""
    logprobs = (1 if ask.top_logprobs is None else ask.top_logprobs) if ask.logprobs else 0
    return pb.PredictOptions(
        Prompt=ask.prompt,
        Messages=[] if ask.prompt else [_message(message) for message in ask.messages],
        UseTokenizerTemplate=not ask.prompt,
        Tools=json.dumps([marshalled(tool) for tool in ask.tools]) if ask.tools else "",
        ToolChoice="" if ask.tool_choice is None else json.dumps(ask.tool_choice),
        Tokens=ask.max_tokens,
        Temperature=ask.temperature,
        TopP=0.95,
        TopK=40,
        Seed=ask.seed,
        StopPrompts=ask.stop,
        Logprobs=logprobs,
        TopLogprobs=logprobs,
        LogitBias=json.dumps(dict(ask.logit_bias)) if ask.logit_bias else "",
        Metadata=ask.metadata,
        Grammar=ask.grammar,
        # Of other engines, and always there.
        TypicalP=1,
        TailFreeSamplingZ=1,
        Batch=512,
        NKeep=0,
    )


def predict_options_with_prompt(ask: Ask) -> pb.PredictOptions:
    """The same from endpoints that render a prompt in any case: without templates, the messages' texts."""
    options = predict_options(ask)
    options.Prompt = ask.prompt or "\n".join(message.get("content") or "" for message in ask.messages)
    return options


def _message(message: Mapping[str, Any]) -> pb.Message:
    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls") or ())]
    return pb.Message(
        role=message["role"],
        content=message.get("content") or "",
        name=message.get("name", ""),
        tool_call_id=message.get("tool_call_id", ""),
        tool_calls=json.dumps(calls) if calls else "",
    )


def marshalled(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Every function has all four fields, as Go's JSON writes them."""
    function = tool["function"]
    return {
        "type": "function",
        "function": {
            "name": function["name"],
            "description": function.get("description", ""),
            "strict": function.get("strict", False),
            "parameters": function.get("parameters"),
        },
    }
