# SPDX-License-Identifier: MIT
"""Predict and PredictStream over a real grpc.aio server: order, usage, cancellation, failure, death."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from chatdelta import BackendFailure, EngineDelta, FinishReason, InvalidRequest, Outcome, Timings, ToolCallFragment
from chatdelta.requests import GenerationRequest
from chatdelta.testing import SCRIPTED_INFO, Step, Wait, text_script
from localai_proto import backend_pb2 as pb
from tests.support.waiting import until
from tests.vllm_nnrp.doors import chat, open_door, status_of, until_still
from vllm_nnrp.grpc_door import servicer

TOOLS = '[{"type":"function","function":{"name":"lookup","parameters":null}}]'
NO_PARSER = replace(SCRIPTED_INFO, tool_parser=None)
END = FinishReason.STOP


def answer_script() -> tuple[Step, ...]:
    """Reasoning, text, one tool call in three fragments and one without arguments; a count each."""
    return (
        EngineDelta(reasoning="Let me ", prompt_tokens=5, completion_tokens=1, reasoning_tokens=1),
        EngineDelta(reasoning="think.", content="Paris", completion_tokens=3, reasoning_tokens=2),
        EngineDelta(content="!", completion_tokens=4),
        EngineDelta(tool_calls=(ToolCallFragment(0, "call-a", "lookup", '{"q":'),), completion_tokens=5),
        EngineDelta(tool_calls=(ToolCallFragment(0, arguments='"x"'),), completion_tokens=6),
        EngineDelta(tool_calls=(ToolCallFragment(0, arguments="}"),), completion_tokens=7),
        EngineDelta(tool_calls=(ToolCallFragment(1, "call-b", "now"),), completion_tokens=8),
        EngineDelta(completion_tokens=9, finish_reason=FinishReason.TOOL_CALLS, timings=Timings(0.001, 0.25, 0.5)),
    )


async def collect(call: Any) -> list[pb.Reply]:
    return [reply async for reply in call]


@pytest.mark.asyncio
async def test_text_comes_in_order_with_the_running_usage_on_every_reply() -> None:
    async with open_door(text_script("The ", "capital ", "is ", "Paris.")) as door:
        replies = await collect(door.stub.PredictStream(chat()))
    assert [reply.message for reply in replies] == [b"The ", b"capital ", b"is ", b"Paris.", b""]
    assert [reply.chat_deltas[0].content.encode() for reply in replies[:-1]] == [r.message for r in replies[:-1]]
    assert [(reply.prompt_tokens, reply.tokens) for reply in replies] == [(3, 1), (3, 2), (3, 3), (3, 4), (3, 4)]
    assert not replies[-1].chat_deltas


@pytest.mark.asyncio
async def test_with_tools_active_everything_is_in_deltas_and_message_stays_empty() -> None:
    async with open_door(answer_script()) as door:
        replies = await collect(door.stub.PredictStream(chat(Tools=TOOLS)))
    assert {reply.message for reply in replies} == {b""}
    deltas = [delta for reply in replies for delta in reply.chat_deltas]
    assert "".join(delta.reasoning_content for delta in deltas) == "Let me think."
    assert "".join(delta.content for delta in deltas) == "Paris!"
    calls = [(c.index, c.id, c.name, c.arguments) for delta in deltas for c in delta.tool_calls]
    assert calls == [
        (0, "call-a", "lookup", '{"q":'),
        (0, "", "", '"x"'),
        (0, "", "", "}"),
        (1, "call-b", "now", ""),
        (1, "", "", "{}"),
    ]
    last = replies[-1]
    assert (last.prompt_tokens, last.tokens) == (5, 9)
    assert (last.timing_prompt_processing, last.timing_token_generation) == (250.0, 500.0)


@pytest.mark.asyncio
async def test_the_end_of_reasoning_and_the_start_of_text_are_two_replies() -> None:
    async with open_door((*answer_script()[:3], EngineDelta(completion_tokens=4, finish_reason=END))) as door:
        replies = await collect(door.stub.PredictStream(chat()))
    kinds = [(r.message, [(d.reasoning_content, d.content) for d in r.chat_deltas]) for r in replies]
    assert kinds == [
        (b"", [("Let me ", "")]),
        (b"", [("think.", "")]),
        (b"Paris", [("", "Paris")]),
        (b"!", [("", "!")]),
        (b"", []),
    ]


MERGED = (
    EngineDelta(content="a", prompt_tokens=3, completion_tokens=1, more_follows=True),
    EngineDelta(content="b", completion_tokens=2, more_follows=True),
)
THIRD = EngineDelta(content="c", completion_tokens=3)
SILENT = EngineDelta(completion_tokens=3)
MIXED = EngineDelta(reasoning="r", prompt_tokens=3, completion_tokens=1, reasoning_tokens=1, more_follows=True)
Written = tuple[bytes, list[str], int]


def written(reply: pb.Reply) -> Written:
    return reply.message, [delta.content or f"({delta.reasoning_content})" for delta in reply.chat_deltas], reply.tokens


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param((*MERGED, THIRD), [(b"abc", ["a", "b", "c"], 3)], id="a merged delta of three tokens"),
        pytest.param((*MERGED, SILENT), [(b"ab", ["a", "b"], 3)], id="the last of them says nothing"),
        pytest.param((THIRD, THIRD), [(b"c", ["c"], 3), (b"c", ["c"], 3)], id="two that came one by one"),
        pytest.param(
            (MIXED, MERGED[1], THIRD), [(b"", ["(r)"], 3), (b"bc", ["b", "c"], 3)], id="of two kinds, in their order"
        ),
    ],
)
async def test_what_is_there_at_once_is_one_reply_and_waits_for_nothing(
    script: tuple[Step, ...], expected: list[Written]
) -> None:
    async with open_door((*script, Wait(asyncio.Event()))) as door:
        call = door.stub.PredictStream(chat())
        async with asyncio.timeout(10):  # the engine says nothing more
            assert [written(await call.read()) for _ in expected] == expected
        call.cancel()
        await door.idle()
    assert len(door.engine.aborted) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("ending", "status"),
    [
        pytest.param(BackendFailure("it broke"), grpc.StatusCode.INTERNAL, id="a failure"),
        pytest.param(
            EngineDelta(completion_tokens=2, finish_reason=FinishReason.ABORT), grpc.StatusCode.CANCELLED, id="an abort"
        ),
    ],
)
async def test_an_end_between_loses_nothing_of_what_had_been_said(ending: Step, status: grpc.StatusCode) -> None:
    async with open_door((*MERGED, ending)) as door:
        call = door.stub.PredictStream(chat())
        assert written(await call.read()) == (b"ab", ["a", "b"], 2)
        assert (await status_of(call.read()))[0] is status


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fields", "info", "text_in_message", "expected"),
    [
        pytest.param({"Tools": TOOLS}, SCRIPTED_INFO, False, [b"", b""], id="tools are active"),
        pytest.param({"Tools": TOOLS}, SCRIPTED_INFO, True, [b"a", b""], id="tools are active, the text is wanted"),
        pytest.param({"Tools": TOOLS, "ToolChoice": "none"}, SCRIPTED_INFO, False, [b"a", b""], id="tool choice none"),
        pytest.param({"Tools": TOOLS}, NO_PARSER, False, [b"a", b""], id="the engine has no tool parser"),
        pytest.param({}, SCRIPTED_INFO, False, [b"a", b""], id="no tools"),
    ],
)
async def test_when_text_is_in_message(fields: Any, info: Any, text_in_message: bool, expected: list[bytes]) -> None:
    async with open_door(text_script("a"), info=info, text_in_message=text_in_message) as door:
        replies = await collect(door.stub.PredictStream(chat(**fields)))
    assert [reply.message for reply in replies] == expected


@pytest.mark.asyncio
async def test_predict_is_one_reply_with_the_whole_answer() -> None:
    async with open_door(answer_script()) as door:
        reply = await door.stub.Predict(chat(Tools=TOOLS))
    assert reply.message == b"Paris!"
    (delta,) = reply.chat_deltas
    assert (delta.content, delta.reasoning_content) == ("Paris!", "Let me think.")
    calls = [(c.index, c.id, c.name, c.arguments) for c in delta.tool_calls]
    assert calls == [(0, "call-a", "lookup", '{"q":"x"}'), (1, "call-b", "now", "{}")]
    assert (reply.prompt_tokens, reply.tokens, reply.timing_token_generation) == (5, 9, 500.0)


@pytest.mark.asyncio
async def test_32_streams_at_once_are_each_complete_and_in_order() -> None:
    def script(request: GenerationRequest) -> Iterator[Step]:
        name = request.body["messages"][0]["content"]
        yield from text_script(*(f"{name}-{position} " for position in range(50)))

    async with open_door(script) as door:

        async def one(name: str) -> bool:
            options = pb.PredictOptions(Messages=[pb.Message(role="user", content=name)])
            replies = await collect(door.stub.PredictStream(options))
            return "".join(r.message.decode() for r in replies) == "".join(f"{name}-{i} " for i in range(50))

        assert all(await asyncio.gather(*(one(f"s{number}") for number in range(32))))
        assert len({request.request_id for request in door.engine.requests}) == 32
        await door.idle()


@pytest.mark.asyncio
@pytest.mark.parametrize("leave", ["cancel", "close the channel"])
@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_leaves_mid_stream_aborts_in_the_engine(leave: str, reads: bool) -> None:
    sent = itertools.count(1)
    progress = [0]

    def endless(request: GenerationRequest) -> Iterator[Step]:
        for progress[0] in sent:
            yield EngineDelta(content="x" * 16384, completion_tokens=progress[0])

    async with open_door(endless) as door:
        call = door.stub.PredictStream(chat())
        await call.read()
        if not reads:
            await until_still(lambda: progress[0])  # the engine waits for the client: flow control holds
        if leave == "cancel":
            call.cancel()
        else:
            await door.channel.close()
        await door.idle()
        assert door.engine.aborted == [door.engine.requests[0].request_id]
        await until(lambda: len(door.observations) == 1)
        assert door.observations[0].outcome is Outcome.CANCELLED


@pytest.mark.asyncio
async def test_a_client_that_stalls_for_too_long_is_given_up_with_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servicer, "STALL_S", 0.3)
    many = (EngineDelta(content="x" * 16384, completion_tokens=count) for count in range(1, 1000))
    async with open_door(lambda _request: many) as door:
        call = door.stub.PredictStream(chat())
        await until(lambda: door.engine.aborted)
        await door.idle()
        assert await status_of(call) == (grpc.StatusCode.DEADLINE_EXCEEDED, "nothing was read for 0.3 s")
        assert (door.observations[0].outcome, door.observations[0].cancel_reason) == (Outcome.CANCELLED, "stalled")


@pytest.mark.asyncio
async def test_cancelling_a_unary_call_aborts_in_the_engine() -> None:
    never = asyncio.Event()
    async with open_door((EngineDelta(content="a", completion_tokens=1), Wait(never))) as door:
        call = door.stub.Predict(chat())
        await until(lambda: bool(door.engine.running))
        call.cancel()
        await door.idle()
        assert len(door.engine.aborted) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("rpc", ["Predict", "PredictStream"])
@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (BackendFailure("the engine refused"), grpc.StatusCode.INTERNAL, "the engine refused"),
        (InvalidRequest("bad seed"), grpc.StatusCode.INVALID_ARGUMENT, "bad seed"),
        (ZeroDivisionError("secret"), grpc.StatusCode.INTERNAL, "internal error; the log has the details"),
    ],
)
async def test_an_engine_error_mid_stream_ends_the_rpc_with_its_status(
    rpc: str, error: Exception, code: grpc.StatusCode, text: str
) -> None:
    async with open_door((EngineDelta(content="a", completion_tokens=1), error)) as door:
        assert await status_of(getattr(door.stub, rpc)(chat())) == (code, text)
        assert (await door.stub.Health(pb.HealthMessage())).message == b"OK"


@pytest.mark.asyncio
async def test_the_engines_death_ends_every_stream_and_shows_in_status() -> None:
    never = asyncio.Event()
    async with open_door((EngineDelta(content="a", completion_tokens=1), Wait(never))) as door:
        calls = [aiter(door.stub.PredictStream(chat())) for _ in range(4)]
        for call in calls:
            assert (await anext(call)).message == b"a"
        door.engine.kill()
        for call in calls:
            code, _ = await status_of(call)
            assert code is grpc.StatusCode.INTERNAL
        await until(door.host.died.is_set)
        status = await door.stub.Status(pb.HealthMessage())
        assert status.state == pb.StatusResponse.ERROR
        code, _ = await status_of(door.stub.Predict(chat()))
        assert code is grpc.StatusCode.INTERNAL


@pytest.mark.asyncio
async def test_free_lets_streams_run_out_then_aborts_the_rest() -> None:
    release, never = asyncio.Event(), asyncio.Event()

    def script(request: GenerationRequest) -> Iterator[Step]:
        is_short = request.body["messages"][0]["content"] == "short"
        yield EngineDelta(content="a", completion_tokens=1)
        yield Wait(release if is_short else never)
        yield EngineDelta(content="b", completion_tokens=2, finish_reason=END)

    async with open_door(script) as door:
        short = aiter(door.stub.PredictStream(pb.PredictOptions(Messages=[pb.Message(role="user", content="short")])))
        long = aiter(door.stub.PredictStream(chat()))
        await anext(short)
        await anext(long)
        free = door.stub.Free(pb.HealthMessage())
        await until(lambda: door.loader.busy)
        code, text = await status_of(door.stub.Predict(chat()))
        assert (code, "model not loaded" in text) == (grpc.StatusCode.FAILED_PRECONDITION, True)
        release.set()
        assert [reply.message async for reply in short] == [b"b", b""]
        assert (await status_of(long))[0] is grpc.StatusCode.CANCELLED
        assert (await free).success
        assert door.engine.stopped
        assert (await door.stub.Status(pb.HealthMessage())).state == pb.StatusResponse.UNINITIALIZED
