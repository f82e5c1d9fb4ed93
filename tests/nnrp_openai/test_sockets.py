# SPDX-License-Identifier: MIT
"""The whole door: SDK client, sockets, our carrier, the profile, ScriptedEngine."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from nnrp.core import MessageType

from chatdelta import EngineDelta, GenerationRequest, TraceContext
from chatdelta.testing import Gap, Script, Step, Wait, text_script
from nnrp_wire import NnrpListener, open_listener
from tests.nnrp_openai.fake_carrier import envelope
from tests.nnrp_openai.serving import Served, serving
from tests.support.sdk_client import SdkClient, SdkEvent, SdkSession
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio

T = TypeVar("T")
PARTIAL, PUSH, DROP = MessageType.PARTIAL_RESULT, MessageType.RESULT_PUSH, MessageType.RESULT_DROP_REASON
TRACE = MessageType.TRACE_CONTEXT


@asynccontextmanager
async def listening(script: Script | Iterable[Step], **options: Any) -> AsyncIterator[tuple[Served, NnrpListener]]:
    async with serving(script, **options) as served, await open_listener(served.handler) as listener:
        yield served, listener


async def in_session(listener: NnrpListener, scenario: Callable[[SdkSession], T]) -> T:
    """Run `scenario` in a thread, on a new client's session."""

    def run() -> T:
        with SdkClient.connect(listener.port) as client:
            return scenario(client.open_session())

    return await asyncio.to_thread(run)


def held(_request: GenerationRequest) -> list[Step]:
    return [*text_script("a")[:1], Wait(asyncio.Event())]


def endless(_request: GenerationRequest) -> Iterator[Step]:
    while True:
        yield EngineDelta(content="x" * 1000)
        yield Gap(0.0)


def shape(events: Iterable[SdkEvent]) -> list[tuple[MessageType, str]]:
    return [(event.message_type, json.loads(event.payload)["type"]) for event in events]


def terminal(events: list[SdkEvent]) -> Any:
    return json.loads(events[-1].payload)


async def test_a_stream() -> None:
    async with listening(text_script("Hel", "lo")) as (_, listener):
        request = envelope({"stream_options": {"include_usage": True}})
        events = await in_session(listener, lambda session: session.collect(session.submit(request)))
    assert shape(events) == [
        (PARTIAL, "response.output_text.delta"),
        (PARTIAL, "response.output_text.delta"),
        (PARTIAL, "response.usage"),
        (PUSH, "response.completed"),
    ]
    assert [event.metadata.result_sequence for event in events[:-1]] == [1, 2, 3]
    assert events[-1].metadata.status_code == 200
    assert terminal(events)["body"]["choices"][0]["message"]["content"] == "Hello"


async def test_without_a_stream() -> None:
    async with listening(text_script("Hello")) as (_, listener):
        request = envelope({"stream": False})
        events = await in_session(listener, lambda session: session.collect(session.submit(request)))
    assert shape(events) == [(PUSH, "response.completed")]


WRONG: dict[str, tuple[bytes, int, str]] = {
    "not JSON": (b"hello", 400, "invalid_envelope"),
    "schema version": (envelope(schema_version="openai-compatible/9"), 400, "unsupported_schema_version"),
    "model missing": (envelope(body={"messages": [{}]}), 400, "missing_model"),
    "messages missing": (envelope(body={"model": "scripted"}), 400, "missing_messages"),
    "another model": (envelope({"model": "gpt-9"}), 404, "unsupported_model"),
    "10 MB of nested JSON": (b"[" * 10_000_000, 400, "invalid_body"),
}


async def test_wrong_requests_each_get_their_error_and_the_session_lives() -> None:
    def scenario(session: SdkSession) -> list[tuple[int, str]]:
        answers = []
        for text, _, _ in WRONG.values():
            (event,) = session.collect(session.submit(text))
            answers.append((event.metadata.status_code, json.loads(event.payload)["error"]["code"]))
        assert terminal(session.collect(session.submit(envelope())))["type"] == "response.completed"
        return answers

    async with listening(text_script("a")) as (_, listener):
        assert await in_session(listener, scenario) == [(status, code) for _, status, code in WRONG.values()]


async def test_64_operations_at_once_are_each_complete_and_in_order() -> None:
    texts = [f"{n} " for n in range(20)]

    def script(request: GenerationRequest) -> list[Step]:
        label = request.origin.peer_request_id
        return [*(EngineDelta(content=f"{label}:{text}") for text in texts), *text_script()]

    def scenario(session: SdkSession) -> dict[int, list[SdkEvent]]:
        operations = [session.submit(envelope(request_id=f"r{n}")) for n in range(64)]
        return {n: session.collect(operation) for n, operation in enumerate(operations)}

    async with listening(script) as (served, listener):
        answers = await in_session(listener, scenario)
        assert served.engine.aborted == []
    for number, events in answers.items():
        expected = [f"r{number}:{text}" for text in texts]
        assert [json.loads(event.payload)["delta"] for event in events[:-1]] == expected
        assert terminal(events)["body"]["choices"][0]["message"]["content"] == "".join(expected)


CANCELS: dict[str, tuple[Callable[[SdkSession, Any], None], Any]] = {
    "CANCEL": (lambda session, operation: session.cancel(operation), ("user_cancelled", True)),
    "ABORT": (lambda session, operation: session.abort(operation, reason=4), ("budget_exceeded", None)),
    "FRAME_CANCEL": (lambda session, operation: session.frame_cancel(operation), ("user_cancelled", True)),
    "CANCEL of the session": (lambda session, _: session.cancel_all(), ("user_cancelled", True)),
}


@pytest.mark.parametrize(("cancel", "expected"), CANCELS.values(), ids=CANCELS.keys())
async def test_cancel_mid_stream(cancel: Callable[[SdkSession, Any], None], expected: Any) -> None:
    def scenario(session: SdkSession) -> tuple[list[SdkEvent], Any]:
        operation = session.submit(envelope(), trace_id=77)
        next(session.events(operation))
        cancel(session, operation)
        frames = []
        for frame in session.frames():
            frames.append(frame)
            if frame.is_terminal:
                return frames, operation
        raise AssertionError("unreachable")

    async with listening(held) as (served, listener):
        (trace, drop), operation = await in_session(listener, scenario)
        assert (trace.message_type, trace.frame_id, trace.metadata.trace_id) == (TRACE, 0, 77)
        assert (drop.message_type, int(drop.metadata.drop_reason_code)) == (DROP, 3)
        reason, aborted = expected
        assert json.loads(drop.payload) == {
            "type": "response.cancelled",
            "reason": reason,
            "source": "peer",
            "operation_id": operation.operation_id,
            "backend_aborted": aborted,
        }
        assert len(served.engine.aborted) == 1


async def test_cancel_while_the_client_does_not_read() -> None:
    async with listening(endless) as (served, listener):
        submitted, may_cancel = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def scenario(session: SdkSession) -> list[SdkEvent]:
            operation = session.submit(envelope())
            loop.call_soon_threadsafe(submitted.set)
            asyncio.run_coroutine_threadsafe(may_cancel.wait(), loop).result(timeout=10)
            session.cancel(operation)
            return session.collect(operation)

        client = asyncio.create_task(in_session(listener, scenario))
        await submitted.wait()
        await until(lambda: served.engine.running)
        may_cancel.set()
        await until(lambda: not served.engine.running)
        events = await client
        assert {event.message_type for event in events[:-1]} <= {PARTIAL}
        assert events[-1].message_type is DROP


async def test_supersede_and_deadline() -> None:
    def scenario(session: SdkSession) -> list[int]:
        old, new = session.submit(envelope()), session.submit(envelope())
        for operation in (old, new):
            next(session.events(operation))
        session.supersede(old, new)
        superseded = session.collect(old)[-1]
        session.deadline(new, 1)
        expired = session.collect(new)[-1]
        return [int(drop.metadata.drop_reason_code) for drop in (superseded, expired)]

    async with listening(held) as (served, listener):
        assert await in_session(listener, scenario) == [2, 1]
        assert len(served.engine.aborted) == 2


async def test_a_closed_session_aborts_what_it_had() -> None:
    def scenario(session: SdkSession) -> None:
        operations = [session.submit(envelope()) for _ in range(3)]
        for operation in operations:
            next(session.events(operation))
        session.close()

    async with listening(held) as (served, listener):
        await in_session(listener, scenario)
        await until(lambda: served.handler.in_flight == 0)
        assert len(served.engine.aborted) == 3


async def test_a_killed_client_aborts_what_it_had() -> None:
    async with listening(held) as (served, listener):
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "tests.nnrp_openai.killed_client", str(listener.port))
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 30) == b"streaming\n"
        assert len(served.engine.running) == 1
        process.kill()
        await process.communicate()
        await until(lambda: served.handler.in_flight == 0 and listener.connection_count == 0)
        assert len(served.engine.aborted) == 1
        done = await in_session(listener, lambda session: next(session.events(session.submit(envelope()))))
        assert done.message_type is PARTIAL, "the next client is served"


async def test_the_listeners_shutdown_drops_what_runs() -> None:
    async with listening(held) as (served, listener):
        streaming = asyncio.Event()
        loop = asyncio.get_running_loop()
        received: list[SdkEvent] = []  # kept outside: closing a session of a listener that is gone raises

        def scenario(session: SdkSession) -> None:
            for event in session.events(session.submit(envelope())):
                received.append(event)
                loop.call_soon_threadsafe(streaming.set)

        client = asyncio.create_task(in_session(listener, scenario))
        await streaming.wait()
        await listener.drain(0.0)
        await asyncio.gather(client, return_exceptions=True)
        assert [event.message_type for event in received] == [PARTIAL, DROP]
        assert int(received[-1].metadata.drop_reason_code) == 8
        assert json.loads(received[-1].payload)["reason"] == "shutdown"
        assert len(served.engine.aborted) == 1


async def test_a_trace_of_the_session_or_right_after_the_submit_reaches_the_request() -> None:
    def scenario(session: SdkSession) -> None:
        session.trace(5, 6)
        session.collect(session.submit(envelope()))
        operation = session.submit(envelope())
        session.trace(7, 8, operation)
        session.collect(operation)

    async with listening(text_script("a")) as (served, listener):
        await in_session(listener, scenario)
        assert served.engine.requests[0].policy.trace == TraceContext(5, 6)
        # The second trace races its submit (the carrier holds it 2 ms): either it won, or the session's counts.
        assert served.engine.requests[1].policy.trace in (TraceContext(7, 8), TraceContext(5, 6))


async def test_two_clients_with_equal_ids_never_touch_each_other() -> None:
    def scenario(session: SdkSession) -> list[SdkEvent]:
        return session.collect(session.submit(envelope(request_id="same")))

    def script(request: GenerationRequest) -> tuple[Step, ...]:
        return text_script(request.origin.connection_id, *["."] * 50)

    async with listening(script) as (served, listener):
        both = await asyncio.gather(in_session(listener, scenario), in_session(listener, scenario))
        contents = [terminal(events)["body"]["choices"][0]["message"]["content"] for events in both]
        connections = {request.origin.connection_id for request in served.engine.requests}
        assert set(contents) == {name + "." * 50 for name in connections}
        assert len(connections) == 2
        assert [len(events) for events in both] == [52, 52]
