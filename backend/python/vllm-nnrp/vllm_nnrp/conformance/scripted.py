# SPDX-License-Identifier: MIT
"""The scripted engine of conformance runs: it answers the recipes' prompts as the memorised model does, without vLLM.

A token is a word. Reasoning, tool calls, stop strings, token limits, choices, log-probabilities and answers in a JSON
schema come out as a real engine gives them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chatdelta import EngineDelta, EngineInfo, FinishReason, GenerationRequest, Timings, TokenLogprob, ToolCallFragment
from chatdelta.testing import SCRIPTED_INFO, Gap, ScriptedEngine, Step
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS

MODEL = "scripted"
PACE_S = 0.005  # between two tokens: a long answer takes the better part of a second
ANSWER = "Hello! It is good to meet you."  # to what the corpus does not know
LOGPROB = -0.5
PROMPT_TOKENS = 7
WORD = "word "

_WORDS = re.compile(r"\s*\S+|\s+$")


@dataclass(frozen=True, slots=True)
class _Token:
    """One step of one choice."""

    delta: EngineDelta
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the model would say, without limits."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()  # name and the text of the arguments


def scripted_engine(*models: str) -> ScriptedEngine:
    """An engine that serves `models`, MODEL unless given."""
    return ScriptedEngine(script, info=scripted_info(models or (MODEL,)))


def scripted_info(models: Sequence[str]) -> EngineInfo:
    return replace(SCRIPTED_INFO, model_names=tuple(models))


def script(request: GenerationRequest) -> Iterator[Step]:
    """The deltas of every choice, in turns."""
    body = request.body
    tokens, finish, stop = _generated(_answer(body), body)
    choices = body.get("n") or 1
    for count, token in enumerate(tokens, start=1):
        yield Gap(PACE_S)
        for choice in range(choices):
            yield _counted(token, tokens[:count], choice, body)
    for choice in range(choices):
        last = EngineDelta(finish_reason=finish, stop_reason=stop)
        is_last = choice == choices - 1
        timings = Timings(prefill_s=PACE_S, decode_s=PACE_S * len(tokens)) if is_last else None
        yield replace(last, choice_index=choice, prompt_tokens=PROMPT_TOKENS, timings=timings)


def _answer(body: Any) -> _Answer:
    if (schema := _schema(body)) is not None:
        return _Answer(json.dumps(_value(schema)))
    if (function := _forced(body)) is not None:
        return _Answer(calls=((function["name"], json.dumps(_value(function.get("parameters") or {}))),))
    thinks = (body.get("chat_template_kwargs") or {}).get("enable_thinking") is not False
    offered = [tool["function"]["name"] for tool in body.get("tools") or ()]
    for known in CONVERSATIONS:
        names = [tool["function"]["name"] for tool in known.tools]
        if list(known.messages) == list(body["messages"]) and names == offered and known.enable_thinking == thinks:
            calls = tuple((name, json.dumps(arguments)) for name, arguments in known.tool_calls)
            return _Answer(known.content, known.reasoning, calls)
    return _Answer(ANSWER)


def _generated(answer: _Answer, body: Any) -> tuple[list[_Token], FinishReason, str | None]:
    """Its tokens as far as the request lets them come, why it ended, and the stop string if that was one."""
    content, stop = answer.content, None
    stops = body.get("stop") or ()
    for text in (stops,) if isinstance(stops, str) else stops:
        if text in content:
            content, stop = content.partition(text)[0], text
    tokens = [*_words(content, answer.reasoning)]
    if stop is None:
        tokens += _calls(answer.calls)
    limit = body.get("max_tokens")
    if limit is not None and len(tokens) > limit:
        return tokens[:limit], FinishReason.LENGTH, None
    return tokens, FinishReason.TOOL_CALLS if answer.calls and stop is None else FinishReason.STOP, stop


def _words(content: str, reasoning: str) -> Iterator[_Token]:
    for word in _WORDS.findall(reasoning):
        yield _Token(EngineDelta(reasoning=word), is_reasoning=True)
    for word in _WORDS.findall(content):
        yield _Token(EngineDelta(content=word))


def _calls(calls: Iterable[tuple[str, str]]) -> Iterator[_Token]:
    for index, (name, arguments) in enumerate(calls):
        yield _Token(EngineDelta(tool_calls=(ToolCallFragment(index, f"call-{index}", name),)))
        for word in _WORDS.findall(arguments):
            yield _Token(EngineDelta(tool_calls=(ToolCallFragment(index, arguments=word),)))


def _counted(token: _Token, so_far: Sequence[_Token], choice: int, body: Any) -> EngineDelta:
    delta = token.delta
    if delta.tool_calls and choice:
        named = tuple(replace(part, id=part.id and f"{part.id}-of-{choice}") for part in delta.tool_calls)
        delta = replace(delta, tool_calls=named)
    text = delta.content or delta.reasoning
    return replace(
        delta,
        choice_index=choice,
        prompt_tokens=PROMPT_TOKENS,
        completion_tokens=len(so_far),
        reasoning_tokens=sum(each.is_reasoning for each in so_far),
        logprobs=(TokenLogprob(len(so_far), text, text.encode(), LOGPROB),) if body.get("logprobs") and text else (),
    )


def _schema(body: Any) -> Any:
    form = body.get("response_format") or {}
    return form["json_schema"]["schema"] if form.get("type") == "json_schema" else None


def _forced(body: Any) -> Any:
    """The function that `tool_choice` names."""
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return None
    name = choice["function"]["name"]
    return next(tool["function"] for tool in body["tools"] if tool["function"]["name"] == name)


def _value(schema: Any) -> Any:
    """A value that the schema allows, for the few kinds that the recipes have."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: _value(each) for name, each in schema.get("properties", {}).items()}
        case "array":
            return [_value(schema["items"])] if "items" in schema else []
        case "integer" | "number":
            return 7
        case _:
            return WORD * max(1, -(-schema.get("minLength", 0) // len(WORD)))
