# SPDX-License-Identifier: MIT
"""Both clients against the real doors with a scripted engine: the same events, whichever door."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing

import pytest

from tests.support.waiting import until
from tests.vllm_nnrp_client.both_doors import DOORS, MODEL, both_doors, collect, question
from vllm_nnrp.addresses import Address, NetworkUrl
from vllm_nnrp.client.conversation import Answer, Conversation, Sampling
from vllm_nnrp.client.events import (
    Cancelled,
    ClientEvent,
    Done,
    Error,
    Reasoning,
    Text,
    ToolCallArguments,
    ToolCallDone,
    ToolCallStart,
    Usage,
)
from vllm_nnrp.client.transport import ClientError, GrpcTarget, NnrpTarget, Target, open_client

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}

PARIS = [Text("The"), Text(" capital of France"), Text(" is Paris."), Usage(7, 3), Done("stop")]
WEATHER = [
    Reasoning("\nLook"),
    Reasoning(" it up.\n"),
    ToolCallStart(0, "call-1", "get_weather"),
    ToolCallArguments(0, '{"city": "'),
    ToolCallArguments(0, 'Paris"}'),
    ToolCallDone(0, "call-1", "get_weather", '{"city": "Paris"}'),
    Usage(5, 5),
    Done("tool_calls"),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("text", "expected"), [("hello", PARIS), ("weather", WEATHER)])
async def test_an_answer_is_the_same_over_both_doors(door: str, text: str, expected: list[ClientEvent]) -> None:
    async with both_doors() as doors, open_client(doors.targets[door]) as client:
        assert await collect(client, question(text)) == expected


@pytest.mark.parametrize("door", DOORS)
async def test_the_engine_gets_what_was_asked(door: str) -> None:
    conversation = Conversation(
        model=MODEL, system="be kind", tools=[TOOL], sampling=Sampling(0.5, max_tokens=9, enable_thinking=False)
    )
    conversation.say("hello")
    async with both_doors() as doors, open_client(doors.targets[door]) as client:
        await collect(client, conversation.question())
        (request,) = doors.engine.requests
    body = request.body
    assert [(m["role"], m["content"]) for m in body["messages"]] == [("system", "be kind"), ("user", "hello")]
    assert (body["temperature"], body["max_tokens"]) == (0.5, 9)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["tools"][0]["function"]["name"] == "get_weather"
    assert body.get("seed") is None


@pytest.mark.parametrize("door", DOORS)
async def test_a_tool_result_goes_back_with_its_call(door: str) -> None:
    conversation = Conversation(model=MODEL)
    conversation.say("weather")
    async with both_doors() as doors, open_client(doors.targets[door]) as client:
        answer = Answer()
        for event in await collect(client, conversation.question()):
            answer.feed(event)
        conversation.answered(answer)
        conversation.give_result("17 degrees")
        events = await collect(client, conversation.question())
        assert "".join(event.text for event in events if isinstance(event, Text)) == "So it is 17 degrees."
        call, result = doors.engine.requests[1].body["messages"][-2:]
    assert call["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    assert result["tool_call_id"] == "call-1"


@pytest.mark.parametrize("door", DOORS)
async def test_cancel_reaches_the_engine_and_ends_the_stream(door: str) -> None:
    async with both_doors() as doors, open_client(doors.targets[door]) as client:
        cancel = asyncio.Event()
        events: list[ClientEvent] = []
        async for event in client.ask(question("count"), cancel):
            events.append(event)
            if len(events) == 3:
                cancel.set()
        await until(lambda: doors.engine.aborted and not doors.engine.running)
        assert events[-1] == Cancelled("user_cancelled")
        assert all(isinstance(event, Text) for event in events[:-1])
        assert await collect(client, question("hello")) == PARIS  # the client lives on


@pytest.mark.parametrize("door", DOORS)
async def test_a_stream_that_is_closed_early_is_aborted(door: str) -> None:
    async with both_doors() as doors, open_client(doors.targets[door]) as client:
        async with aclosing(client.ask(question("count"), asyncio.Event())) as events:
            assert await anext(events) == Text("1 ")
        await until(lambda: doors.engine.aborted and not doors.engine.running)


@pytest.mark.parametrize(("door", "code"), [("grpc", "internal"), ("nnrp", "backend_error")])
async def test_a_failure_is_an_event_after_what_came_before(door: str, code: str) -> None:
    async with both_doors() as doors, open_client(doors.targets[door]) as client:
        assert await collect(client, question("fail")) == [Text("half"), Error(code, "the engine lost it")]


async def test_a_wrong_model_is_named_by_the_server() -> None:
    conversation = Conversation(model="other")
    conversation.say("hello")
    async with both_doors() as doors, open_client(doors.targets["nnrp"]) as client:
        (event,) = await collect(client, conversation.question())
    assert isinstance(event, Error)
    assert event.code == "unsupported_model"
    assert "other" in event.message


@pytest.mark.parametrize("door", DOORS)
async def test_the_right_token_opens_the_door(door: str) -> None:
    async with (
        both_doors(token="sesame", client_token="sesame") as doors,
        open_client(doors.targets[door]) as client,
    ):
        assert await collect(client, question("hello")) == PARIS


async def test_without_a_token_grpc_says_where_it_comes_from() -> None:
    async with both_doors(token="sesame") as doors:
        with pytest.raises(ClientError, match="LOCALAI_GRPC_AUTH_TOKEN"):
            await open_client(doors.targets["grpc"]).__aenter__()


async def test_without_a_token_nnrp_refuses_the_question() -> None:
    async with both_doors(token="sesame", client_token="wrong") as doors, open_client(doors.targets["nnrp"]) as client:
        (event,) = await collect(client, question("hello"))
    assert isinstance(event, Error)
    assert event.code == "invalid_token"


@pytest.mark.parametrize("door", DOORS)
async def test_an_engine_that_dies_ends_the_stream_with_an_error(door: str) -> None:
    async with both_doors() as doors:
        target = doors.targets[door]
        async with open_client(target) as client:
            events = client.ask(question("count"), asyncio.Event())
            assert await anext(events) == Text("1 ")
            doors.engine.kill()
            *_, last = [event async for event in events]
    assert isinstance(last, Error)


@pytest.mark.parametrize(
    "target",
    [GrpcTarget(Address("127.0.0.1", 1)), NnrpTarget(NetworkUrl("nnrp", Address("127.0.0.1", 1)))],
    ids=["grpc", "nnrp"],
)
async def test_nobody_there_is_said_in_words(target: Target) -> None:
    with pytest.raises(ClientError, match=f"{target}: connection refused"):
        await open_client(target).__aenter__()


async def test_the_wrong_door_is_said_in_words() -> None:
    async with both_doors() as doors:
        grpc, nnrp = doors.targets["grpc"], doors.targets["nnrp"]
        assert isinstance(grpc, GrpcTarget)
        assert isinstance(nnrp, NnrpTarget)
        assert isinstance(nnrp.url, NetworkUrl)
        with pytest.raises(ClientError, match="does it speak gRPC"):
            await open_client(GrpcTarget(nnrp.url.address)).__aenter__()
        with pytest.raises(ClientError, match="does not open an NNRP session"):
            await open_client(NnrpTarget(NetworkUrl("nnrp", grpc.address))).__aenter__()


async def test_a_silent_server_is_not_waited_for_after_a_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_nnrp.client import nnrp_client

    monkeypatch.setattr(nnrp_client, "CANCEL_WAIT_S", 0.1)
    monkeypatch.setattr(nnrp_client, "CLOSE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:  # connections wait in its queue for ever
        client = nnrp_client.NnrpClient(NnrpTarget(NetworkUrl("nnrp", Address(*server.getsockname()))))
        cancel = asyncio.Event()
        cancel.set()
        events = await collect(client, question("hello"), cancel)
    assert events == [Cancelled("not confirmed by the server")]
