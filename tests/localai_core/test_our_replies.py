# SPDX-License-Identifier: MIT
"""What users see of our own replies, endpoint by endpoint, with and without text in `message` beside tools.

A scripted engine behind a real gRPC door; this is the table of docs/decisions/0006.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from chatdelta import EngineDelta, FinishReason, ToolCallFragment
from localai_proto import backend_pb2 as pb
from tests.localai_core.anthropic import anthropic, anthropic_stream
from tests.localai_core.ask import Ask
from tests.localai_core.attempts import Backend
from tests.localai_core.backends import GrpcBackend
from tests.localai_core.chat import chat
from tests.localai_core.chat_stream import chat_stream
from tests.localai_core.completions import completion, completion_stream, ollama, ollama_stream
from tests.localai_core.realtime import realtime
from tests.localai_core.responses import responses, responses_stream
from tests.localai_core.shown import Shown
from tests.localai_core.written import PLAIN, TOOLS
from tests.vllm_nnrp.doors import open_door

Seen = tuple[str, str, list[str]]  # text, reasoning, names of calls


def responses_streamed(backend: Backend, ask: Ask) -> Shown:
    return responses_stream(backend, ask).streamed


def responses_completed(backend: Backend, ask: Ask) -> Shown:
    return responses_stream(backend, ask).completed


Endpoint = Callable[[Backend, Ask], Shown]
CHAT: tuple[Endpoint, ...] = (chat_stream, chat)
MESSAGE_ONLY: tuple[Endpoint, ...] = (completion_stream, completion, ollama_stream, ollama)


@dataclass(frozen=True)
class Said:
    """What the model said, a token a piece."""

    reasoning: Sequence[str] = ()
    text: Sequence[str] = ()
    call: str = ""  # a name

    def script(self) -> list[EngineDelta]:
        deltas = [EngineDelta(reasoning=piece) for piece in self.reasoning]
        deltas += [EngineDelta(content=piece) for piece in self.text]
        if self.call:
            deltas += [
                EngineDelta(tool_calls=(ToolCallFragment(0, "call-1", self.call),)),
                EngineDelta(tool_calls=(ToolCallFragment(0, arguments="{}"),)),
            ]
        reason = FinishReason.TOOL_CALLS if self.call else FinishReason.STOP
        deltas.append(EngineDelta(finish_reason=reason))
        return [replace(delta, prompt_tokens=3, completion_tokens=n) for n, delta in enumerate(deltas, start=1)]


async def ask_ours(said: Said, ask: Ask, endpoints: Sequence[Endpoint], *, text_in_message: bool) -> list[Shown]:
    async with open_door(said.script(), text_in_message=text_in_message) as door:
        backend = GrpcBackend(str(door.server.address))
        shown = [await asyncio.to_thread(endpoint, backend, ask) for endpoint in endpoints]
        assert len(door.engine.requests) == sum(answer.attempts for answer in shown)
        return shown


def seen(shown: Shown) -> Seen:
    return shown.text, shown.reasoning, [call.name for call in shown.calls]


THINKING = Said(["I ", "see."], ["Hello ", "you."])
QUIET = Said(text=["Hello ", "you."])
TEXT_AND_CALL = Said(["I ", "see."], ["Let ", "me ", "look."], "f")
PERSON = Said(text=['{"name": ', '"Ada"', ', "born": ', "1815", "}"])
LIKE_A_CALL = Said(text=['{"name": ', '"Ada"', ', "arguments": ', '"none"', "}"])
ADA, NONE = '{"name": "Ada", "born": 1815}', '{"name": "Ada", "arguments": "none"}'


@dataclass(frozen=True)
class Row:
    """`off` and `on`: what is seen without and with text in message; None where it is the same."""

    said: Said
    ask: Ask
    off: dict[Endpoint, Seen]
    on: dict[Endpoint, Seen] = field(default_factory=dict)


HELLO: Seen = ("Hello you.", "", [])
THOUGHT: Seen = ("Hello you.", "I see.", [])
ROWS: dict[str, Row] = {
    "thinking, no tools": Row(
        THINKING,
        PLAIN,
        {
            **dict.fromkeys(CHAT, THOUGHT),
            **dict.fromkeys((*MESSAGE_ONLY, anthropic_stream, realtime), HELLO),
            anthropic: THOUGHT,
            responses: HELLO,
            responses_streamed: HELLO,
            responses_completed: HELLO,
        },
    ),
    "no thinking, no tools": Row(
        QUIET,
        PLAIN,
        dict.fromkeys(
            (
                *(*CHAT, *MESSAGE_ONLY, anthropic, anthropic_stream, realtime),
                *(responses, responses_streamed, responses_completed),
            ),
            HELLO,
        ),
    ),
    "text and a call": Row(
        TEXT_AND_CALL,
        TOOLS,
        {
            **dict.fromkeys(CHAT, ("Let me look.", "I see.", ["f"])),
            anthropic: ("", "I see.", ["f"]),
            anthropic_stream: ("Let me look.", "I see.", ["f"]),
            **dict.fromkeys(
                (realtime, responses, responses_streamed, responses_completed), ("Let me look.", "", ["f"])
            ),
        },
    ),
    "thinking and text, tools offered": Row(
        THINKING,
        TOOLS,
        {
            **dict.fromkeys(CHAT, THOUGHT),
            anthropic: THOUGHT,
            **dict.fromkeys((anthropic_stream, realtime, responses, responses_streamed, responses_completed), HELLO),
        },
    ),
    "text without thinking, tools offered": Row(
        QUIET,
        TOOLS,
        {
            **dict.fromkeys((*CHAT, anthropic, anthropic_stream, realtime, responses, responses_streamed), HELLO),
            responses_completed: ("", "", []),
        },
        {responses_completed: HELLO},
    ),
    "a record with a name, tools offered": Row(
        PERSON,
        TOOLS,
        {
            **dict.fromkeys(
                (*CHAT, anthropic, anthropic_stream, realtime, responses, responses_streamed), (ADA, "", [])
            ),
            responses_completed: ("", "", []),
        },
        {
            chat_stream: ('{"name": "Ada"', "", ["Ada"]),
            **dict.fromkeys((responses_streamed, responses_completed), ('"Ada", "born": 1815}', "", [])),
        },
    ),
    "a record with a name and arguments, tools offered": Row(
        LIKE_A_CALL,
        TOOLS,
        {
            **dict.fromkeys((chat_stream, anthropic_stream, realtime, responses_streamed), (NONE, "", [])),
            chat: (NONE, "", ["Ada"]),
            anthropic: ("", "", ["Ada"]),
            responses: (NONE, "", ["Ada"]),
            responses_completed: ("", "", []),
        },
        {
            chat_stream: ('{"name": "Ada"', "", ["Ada"]),
            anthropic_stream: (NONE[:-1], "", ["Ada"]),
            **dict.fromkeys((responses_streamed, responses_completed), ('"Ada", "arguments": "none"}', "", [])),
        },
    ),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("text_in_message", [False, True], ids=["message empty", "text in message"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_what_a_user_sees(row: Row, text_in_message: bool) -> None:
    expected = row.off | row.on if text_in_message else row.off
    shown = await ask_ours(row.said, row.ask, list(expected), text_in_message=text_in_message)
    names = [endpoint.__name__ for endpoint in expected]
    assert dict(zip(names, map(seen, shown), strict=True)) == dict(zip(names, expected.values(), strict=True))


@pytest.mark.asyncio
@pytest.mark.parametrize("text_in_message", [False, True], ids=["message empty", "text in message"])
async def test_when_a_user_of_anthropics_stream_sees_it(text_in_message: bool) -> None:
    (shown,) = await ask_ours(QUIET, TOOLS, [anthropic_stream], text_in_message=text_in_message)
    assert shown.chunks == ([("text", "Hello "), ("text", "you.")] if text_in_message else [("text", "Hello you.")])


@pytest.mark.asyncio
@pytest.mark.parametrize("process", [False, True])
@pytest.mark.parametrize(
    ("option", "model"), [("", None), ("text_in_message:false", False), ("text_in_message:on", True)]
)
async def test_the_models_option_wins_over_the_process(process: bool, option: str, model: bool | None) -> None:
    async with open_door(QUIET.script(), text_in_message=process, is_loaded=False) as door:
        backend = GrpcBackend(str(door.server.address))
        for options in ([option], ["text_in_message:true"], [option]):  # the same model again takes the new options
            result = await door.stub.LoadModel(pb.ModelOptions(Model="org/m", Options=options))
            assert result.success, result.message
        shown = await asyncio.to_thread(anthropic_stream, backend, TOOLS)
        assert len(shown.chunks) == (2 if (process if model is None else model) else 1)


ALL: tuple[Endpoint, ...] = (*CHAT, *MESSAGE_ONLY, anthropic, anthropic_stream, responses, responses_streamed, realtime)


@pytest.mark.asyncio
@pytest.mark.parametrize("ask", [PLAIN, TOOLS], ids=["plain", "with tools"])
@pytest.mark.parametrize("text_in_message", [False, True], ids=["message empty", "text in message"])
async def test_reasoning_alone_is_shown_once(ask: Ask, text_in_message: bool) -> None:
    shown = await ask_ours(Said(["I ", "see."]), ask, ALL, text_in_message=text_in_message)
    assert [answer.attempts for answer in shown] == [1] * len(ALL)
    assert {answer.text for answer in shown} <= {"", "\n"}
    assert [answer.reasoning for answer in shown[:2]] == ["I see."] * 2


@pytest.mark.asyncio
@pytest.mark.parametrize("endpoint", [endpoint for endpoint in ALL if endpoint not in (completion, completion_stream)])
async def test_messages_reach_the_model_through_its_own_template(endpoint: Endpoint) -> None:
    """Some endpoints send a prompt beside them, of bare texts."""
    async with open_door(QUIET.script()) as door:
        await asyncio.to_thread(endpoint, GrpcBackend(str(door.server.address)), TOOLS)
        (request,) = door.engine.requests
        assert request.body["messages"] == list(TOOLS.messages)
        assert ("tools" in request.body) == (endpoint not in (ollama, ollama_stream))


RENDERED = replace(TOOLS, prompt="user: hello")
UNPARSED: list[tuple[str, list[str], Ask, dict[Endpoint, Seen]]] = [
    ("reasoning", ["<think>", "r", "</think>", "a"], RENDERED, dict.fromkeys(CHAT, ("a", "r", []))),
    ("a call", ['<tool_call>{"name": "f", ', '"arguments": {}}', "</tool_call>"], RENDERED, {chat: ("", "", ["f"])}),
    (
        "reasoning, no tools",
        ["<think>", "r", "</think>", "a"],
        replace(PLAIN, prompt="x"),
        dict.fromkeys(CHAT, ("a", "r", [])),
    ),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("text", "ask", "expected"), [row[1:] for row in UNPARSED], ids=[row[0] for row in UNPARSED])
async def test_what_core_parses_in_an_answer_to_a_prompt_of_its_own(
    text: list[str], ask: Ask, expected: dict[Endpoint, Seen]
) -> None:
    shown = await ask_ours(Said(text=text), ask, list(expected), text_in_message=False)
    assert list(map(seen, shown)) == list(expected.values())


@pytest.mark.asyncio
async def test_at_the_limit_nothing_is_added_to_reasoning_alone() -> None:
    said = Said(["I ", "see."])
    asks = [replace(PLAIN, max_tokens=3), replace(TOOLS, max_tokens=3)]
    for ask in asks:
        for answer in await ask_ours(said, ask, CHAT, text_in_message=False):
            assert (answer.attempts, answer.text, answer.finish_reason) == (1, "", "length")


@pytest.mark.asyncio
async def test_an_answer_of_nothing_is_left_to_core() -> None:
    """It asks again, and nobody sees it."""
    for answer in await ask_ours(Said(), PLAIN, CHAT, text_in_message=False):
        assert (answer.attempts, answer.text, answer.chunks) == (6, "", [])


@pytest.mark.asyncio
async def test_a_replacement_character_does_not_end_the_text() -> None:
    said = Said(text=["a", "\ufffd", "b"])
    shown = await ask_ours(said, PLAIN, (chat_stream, chat, completion_stream, realtime), text_in_message=False)
    assert [answer.text for answer in shown] == ["a?b", "a\ufffdb", "a?b", "a\ufffdb"]
