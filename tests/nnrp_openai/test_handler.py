# SPDX-License-Identifier: MIT
"""The handler over the in-memory carrier: what a peer gets for what the engine does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from nnrp.core import MessageType
from nnrp.runtime import TraceContextMetadata

from chatdelta import (
    BackendFailure,
    EngineDelta,
    FinishReason,
    InvalidRequest,
    Outcome,
    TraceContext,
)
from chatdelta import ToolCallFragment as Fragment
from chatdelta.testing import Gap, Step, Wait, failing_script, text_script
from chatserving import EngineHost, RequestRunner
from nnrp_openai import ChatAdapter, ProfileHandler, ProfileLimits, capability_document
from nnrp_wire.carrier import Control
from tests.nnrp_openai.fake_carrier import FakeOperation, FakeSession, envelope, fake_operation
from tests.nnrp_openai.serving import Served, serving
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio

USAGE_FIELDS = {"stream_options": {"include_usage": True}}


def text(*deltas: str) -> list[tuple[str, Any]]:
    return [("push", {"type": "response.output_text.delta", "index": 0, "delta": delta}) for delta in deltas]


async def answered(served: Served, operation: FakeOperation) -> list[tuple[str, Any]]:
    """Submit, wait for the terminal, and return everything sent."""
    served.handler.submitted(operation)
    await until(lambda: operation.has_terminal and served.handler.in_flight == 0)
    return operation.session.sent


def error_of(sent: list[tuple[str, Any]]) -> tuple[int, str, str, str]:
    """Status, type, code and message of the one frame: an error terminal."""
    ((kind, (status, event)),) = sent
    assert (kind, event["type"]) == ("finish", "response.error")
    return status, event["error"]["type"], event["error"]["code"], event["error"]["message"]


def message(sent: list[tuple[str, Any]]) -> Any:
    """The message of the completed body in the last frame."""
    kind, (status, event) = sent[-1]
    assert (kind, status, event["type"]) == ("finish", 200, "response.completed")
    return event["body"]["choices"][0]["message"]


async def test_a_stream() -> None:
    async with serving(text_script("Hel", "lo")) as served:
        sent = await answered(served, fake_operation(envelope()))
        assert sent[:-1] == text("Hel", "lo")
        assert message(sent) == {"role": "assistant", "content": "Hello"}
        assert [record.outcome for record in served.records.all] == [Outcome.COMPLETED]
        assert served.engine.aborted == []


async def test_usage_comes_when_asked_for_right_before_the_terminal() -> None:
    async with serving(text_script("Hel", "lo")) as served:
        sent = await answered(served, fake_operation(envelope(USAGE_FIELDS)))
        usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        assert sent[:-1] == [*text("Hel", "lo"), ("push", {"type": "response.usage", "usage": usage})]


async def test_running_usage_follows_each_step_where_it_is_asked_for() -> None:
    wanted = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    async with serving(text_script("Hel", "lo")) as served:
        sent = await answered(served, fake_operation(envelope(wanted)))
        counts = [event["usage"]["output_tokens"] for _, event in sent[:-1] if event["type"] == "response.usage"]
        assert counts == [1, 2, 2]


async def test_chunks_only_for_who_asks() -> None:
    async with serving(text_script("Hel", "lo")) as served:
        sent = await answered(served, fake_operation(envelope(nnrp={"openai_chunk": True})))
        chunks = [event["openai_chunk"] for _, event in sent[:-1]]
        assert [chunk["choices"][0]["delta"] for chunk in chunks] == [{"content": "Hel"}, {"content": "lo"}]
        body = sent[-1][1][1]["body"]
        assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks} == {
            (body["id"], body["created"], body["model"])
        }


@pytest.mark.parametrize("stream", [True, False])
async def test_diagnostics_come_once_right_before_the_terminal(stream: bool) -> None:
    async with serving(text_script("Hel", "lo")) as served:
        sent = await answered(served, fake_operation(envelope({"stream": stream}, nnrp={"diagnostics": True})))
        types = [event["type"] for kind, event in sent if kind == "push"]
        assert types == ["response.output_text.delta"] * (2 * stream) + ["response.diagnostics"]
        diagnostics = sent[-2][1]["diagnostics"]
        (record,) = served.records.all
        assert (diagnostics["outcome"], diagnostics["request_id"]) == ("completed", record.request_id)


async def test_diagnostics_of_a_failure_come_before_it() -> None:
    async with serving(failing_script(BackendFailure("it broke"), *text_script("a")[:1])) as served:
        sent = await answered(served, fake_operation(envelope(nnrp={"diagnostics": True})))
        assert [event["type"] for kind, event in sent if kind == "push"][-1] == "response.diagnostics"
        assert sent[-2][1]["diagnostics"]["error_code"] == "backend_error"


async def test_the_capability_document_is_an_operation() -> None:
    async with serving(text_script("a")) as served:
        document = {"schema_version": "openai-compatible/1", "operation": "capabilities.get", "body": {}}
        ((kind, (status, event)),) = await answered(served, fake_operation(json.dumps(document).encode()))
        assert (kind, status) == ("finish", 200)
        assert event["body"] == capability_document(served.engine.info)
        assert served.records.all == []


async def test_without_a_stream_only_the_terminal() -> None:
    async with serving(text_script("Hel", "lo")) as served:
        sent = await answered(served, fake_operation(envelope({"stream": False, **USAGE_FIELDS})))
        assert len(sent) == 1
        assert message(sent) == {"role": "assistant", "content": "Hello"}


async def test_reasoning_and_a_tool_call() -> None:
    script = [
        EngineDelta(reasoning="hm"),
        EngineDelta(tool_calls=(Fragment(0, "c1", "lookup", '{"a"'),)),
        EngineDelta(tool_calls=(Fragment(0, arguments=":1}"),), finish_reason=FinishReason.TOOL_CALLS),
    ]
    async with serving(script) as served:
        sent = await answered(served, fake_operation(envelope()))
    events = [event for kind, event in sent if kind == "push"]
    assert [event["type"].removeprefix("response.") for event in events] == [
        "reasoning_text.delta",
        "tool_call.started",
        "tool_call.delta",
        "tool_call.delta",
        "tool_call.completed",
    ]
    assert all("choice_index" not in event for event in events)
    assert (events[-1]["name"], events[-1]["arguments"], events[-1]["call_id"]) == ("lookup", '{"a":1}', "c1")


async def test_with_two_choices_calls_name_theirs() -> None:
    call = (Fragment(0, "c", "f", "{}"),)
    script = [EngineDelta(i, tool_calls=call, finish_reason=FinishReason.TOOL_CALLS) for i in (1, 0)]
    async with serving(script) as served:
        sent = await answered(served, fake_operation(envelope({"n": 2})))
    started = [event for kind, event in sent if kind == "push" and event["type"] == "response.tool_call.started"]
    assert [(event["index"], event["choice_index"]) for event in started] == [(0, 1), (0, 0)]


BAD = "invalid_request_error"
ANSWERS: dict[str, tuple[tuple[Step, ...], bytes, tuple[int, str, str, str]]] = {
    "the engine refuses": (
        failing_script(InvalidRequest("too long", code="context_length_exceeded")),
        envelope(),
        (400, BAD, "context_length_exceeded", "too long"),
    ),
    "the engine fails": (
        failing_script(BackendFailure("it broke")),
        envelope(),
        (500, "server_error", "backend_error", "it broke"),
    ),
    "the engine's stream just ends": (
        (),
        envelope(),
        (500, "server_error", "backend_error", "the engine ended the stream before the answer was finished"),
    ),
    "another model": (
        text_script("x"),
        envelope({"model": "gpt-9"}),
        (404, BAD, "unsupported_model", "model gpt-9 is not served here"),
    ),
    "an image for a model of text": (
        text_script("x"),
        envelope({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]}),
        (
            400,
            BAD,
            "unsupported_operation",
            "messages.0.content.0: the loaded model takes text only, no image_url",
        ),
    ),
    "missing messages": (
        text_script("x"),
        envelope(body={"model": "scripted"}),
        (400, BAD, "missing_messages", "body.messages must not be empty"),
    ),
    "not JSON": (text_script("x"), b"hello", (400, BAD, "invalid_envelope", "the envelope is not valid JSON")),
}


@pytest.mark.parametrize(("script", "request_text", "expected"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_errors(script: tuple[Step, ...], request_text: bytes, expected: tuple[int, str, str, str]) -> None:
    async with serving(script) as served:
        assert error_of(await answered(served, fake_operation(request_text))) == expected
        sent = await answered(served, fake_operation(envelope({"model": "gpt-9"})))
        assert error_of(sent)[0] == 404, "the next one is answered"


async def test_an_error_in_mid_stream_follows_the_events() -> None:
    async with serving(failing_script(BackendFailure("it broke"), *text_script("a")[:1])) as served:
        sent = await answered(served, fake_operation(envelope()))
    assert sent[:-1] == text("a")
    assert error_of(sent[-1:])[2] == "backend_error"


async def test_an_unforeseen_error_is_logged_and_its_text_stays_here(caplog: pytest.LogCaptureFixture) -> None:
    async with serving([ValueError("/secret/path")]) as served:
        sent = await answered(served, fake_operation(envelope()))
    assert error_of(sent) == (500, "server_error", "backend_error", "internal error; the log has the details")
    assert "/secret/path" in caplog.text


@pytest.mark.parametrize("stream", [True, False])
async def test_text_that_no_JSON_can_carry_is_an_internal_error(stream: bool) -> None:
    async with serving(text_script("\ud800")) as served:
        sent = await answered(served, fake_operation(envelope({"stream": stream})))
    assert error_of(sent) == (500, "server_error", "backend_error", "internal error; the log has the details")


async def test_engine_death_ends_every_stream() -> None:
    forever = asyncio.Event()
    async with serving([*text_script("a")[:1], Wait(forever)]) as served:
        session = FakeSession()
        operations = [fake_operation(envelope(), session, operation_id=n) for n in (1, 2)]
        for operation in operations:
            served.handler.submitted(operation)
        await until(lambda: len(session.sent) == 2)
        served.engine.kill()
        await until(lambda: len(session.sent) == 4)
        assert [error_of([frame])[:3] for frame in session.sent[2:]] == [(500, "server_error", "engine_dead")] * 2
        await until(lambda: served.host.died.is_set())
        assert error_of(await answered(served, fake_operation(envelope())))[2] == "engine_dead"


async def test_no_model_loaded() -> None:
    host = EngineHost()
    handler = ProfileHandler(ChatAdapter(host, RequestRunner(host)))
    operation = fake_operation(envelope())
    handler.submitted(operation)
    await until(lambda: operation.has_terminal)
    assert error_of(operation.session.sent)[:3] == (503, "server_error", "model_not_loaded")
    await handler.close()


async def test_timeout_ms_bounds_the_request_and_aborts_it() -> None:
    async with serving([*text_script("a")[:1], Wait(asyncio.Event())]) as served:
        sent = await answered(served, fake_operation(envelope(nnrp={"timeout_ms": 30})))
        assert sent[:-1] == text("a")
        assert error_of(sent[-1:])[:3] == (504, "timeout_error", "request_timeout")
        assert served.engine.aborted == [served.engine.requests[0].request_id]


async def test_a_drain_of_the_engine_is_a_cancelled_result() -> None:
    async with serving([*text_script("a")[:1], Wait(asyncio.Event())]) as served:
        operation = fake_operation(envelope())
        served.handler.submitted(operation)
        await until(lambda: served.engine.running and operation.session.sent)
        assert await served.engine.abort(served.engine.requests[0].request_id)
        await until(lambda: operation.has_terminal)
        cancelled = {
            "type": "response.cancelled",
            "reason": "aborted by the engine",
            "source": "backend",
            "operation_id": 7,
            "backend_aborted": True,
        }
        assert operation.session.sent == [*text("a"), ("finish", (499, cancelled))]


# Limits


async def overloaded(served: Served, operation: FakeOperation) -> tuple[Any, tuple[int, str, str, str]]:
    before = len(operation.session.sent)
    served.handler.submitted(operation)
    await until(lambda: operation.has_terminal)
    retry, *rest = operation.session.sent[before:]
    return retry, error_of(rest)


async def test_operations_per_session_and_in_all_are_bounded() -> None:
    gate = asyncio.Event()
    limits = ProfileLimits(max_operations_per_session=1, max_operations=2, max_queued=0, retry_after_ms=250)
    async with serving([Wait(gate), *text_script("a")], limits=limits) as served:
        first, second = fake_operation(envelope()), fake_operation(envelope())
        served.handler.submitted(first)
        served.handler.submitted(second)
        again = await overloaded(served, fake_operation(envelope(), first.session, operation_id=8))
        retry = ("retry_after", (250, 4))
        assert again == (
            retry,
            (429, "server_error", "backend_overload", "1 operations of this session are in flight"),
        )
        other = await overloaded(served, fake_operation(envelope()))
        assert other == (retry, (429, "server_error", "backend_overload", "2 operations are in flight and 0 wait"))
        gate.set()
        await until(lambda: first.has_terminal and second.has_terminal and served.handler.in_flight == 0)
        sent = await answered(served, fake_operation(envelope(), first.session, operation_id=9))
        assert message(sent)["content"] == "a", "the places are free again"


async def test_the_hosts_own_limit_is_told_with_retry_after() -> None:
    async with serving([Wait(asyncio.Event())]) as served:
        served.host._max_operations = 0
        retry, error = await overloaded(served, fake_operation(envelope()))
        assert (retry, error[:3]) == (("retry_after", (1000, 4)), (429, "server_error", "backend_overload"))


async def test_a_drain_refuses_new_work_and_waits_for_the_old() -> None:
    gate = asyncio.Event()
    async with serving([Wait(gate), *text_script("a")]) as served:
        operation = fake_operation(envelope())
        served.handler.submitted(operation)
        await until(lambda: served.engine.running)
        drain = asyncio.create_task(served.handler.drain(10.0))
        await asyncio.sleep(0)
        retry, error = await overloaded(served, fake_operation(envelope()))
        assert (retry, error[2:]) == (("retry_after", (1000, 7)), ("backend_overload", "the backend is shutting down"))
        assert not drain.done()
        gate.set()
        await drain
        assert message(operation.session.sent)["content"] == "a"


async def test_a_drain_gives_up_after_its_grace() -> None:
    async with serving([Wait(asyncio.Event())]) as served:
        served.handler.submitted(fake_operation(envelope()))
        await served.handler.drain(0.01)
        assert served.handler.in_flight == 1


# What the engine gets


async def test_the_token_is_checked_and_removed() -> None:
    async with serving(text_script("a"), token="secret") as served:
        refused = await answered(served, fake_operation(envelope()))
        assert error_of(refused)[:3] == (401, "authentication_error", "invalid_token")
        assert served.engine.requests == []
        message(await answered(served, fake_operation(envelope(nnrp={"token": "secret"}))))
        assert "secret" not in repr(served.engine.requests)


async def test_origin_and_policy() -> None:
    nnrp = {"timeout_ms": 60_000, "cache_salt": "salt", "diagnostics": True}
    async with serving(text_script("a")) as served:
        session = FakeSession(session_id=5, connection_id="c9", transport="unix")
        for number in (11, 12):
            request_text = envelope(request_id="mine", nnrp=nnrp)
            served.handler.submitted(fake_operation(request_text, session, operation_id=number))
        await until(lambda: served.handler.in_flight == 0)
        first, second = served.engine.requests
        assert first.request_id != second.request_id
        origin = first.origin
        assert (origin.door, origin.transport, origin.connection_id, origin.session_id) == ("nnrp", "unix", "c9", 5)
        assert (origin.operation_id, origin.frame_id, origin.peer_request_id) == (11, 11, "mine")
        policy = first.policy
        assert (policy.cache_salt, policy.diagnostics, policy.trace) == ("salt", True, None)
        assert policy.timeout_s == pytest.approx(60.0, abs=5.0), "what is left of it since the arrival"
        assert set(first.body) == {"model", "messages", "stream"}


def metadata(trace_id: int, span_id: int) -> TraceContextMetadata:
    return TraceContextMetadata(trace_id, span_id, 3, 4, 1, 10)


@pytest.mark.parametrize(
    ("trace", "header_id", "expected"),
    [
        pytest.param(None, 0, None, id="none"),
        pytest.param(None, 9, TraceContext(9, 0), id="only the header's id: observed, not forwarded"),
        pytest.param(metadata(1, 2), 9, TraceContext(1, 2, 3, 4, 1, 10), id="TRACE_CONTEXT"),
    ],
)
async def test_trace(trace: TraceContextMetadata | None, header_id: int, expected: TraceContext | None) -> None:
    async with serving(text_script("a")) as served:
        operation = fake_operation(envelope())
        operation.trace, operation.trace_id = trace, header_id
        await answered(served, operation)
        assert served.engine.requests[0].policy.trace == expected
        assert [record.trace for record in served.records.all] == [expected]


@pytest.mark.parametrize(("hold_s", "expected"), [(0.05, TraceContext(1, 2, 3, 4, 1, 10)), (0.0, None)])
async def test_a_trace_right_after_the_submit_counts_during_the_hold(
    hold_s: float, expected: TraceContext | None
) -> None:
    async with serving([Gap(0.0), *text_script("a")], limits=ProfileLimits(trace_hold_s=hold_s)) as served:
        operation = fake_operation(envelope())
        served.handler.submitted(operation)
        await asyncio.sleep(0)  # dispatch, unless it is held
        operation.trace = metadata(1, 2)
        served.handler.traced(operation.session, operation.trace, operation)
        await until(lambda: operation.has_terminal)
        assert served.engine.requests[0].policy.trace == expected


async def test_control_and_session_calls_change_nothing() -> None:
    async with serving(text_script("a")) as served:
        session = FakeSession()
        served.handler.session_opened(session)
        served.handler.controlled(session, Control(MessageType.ROUTE_HINT, None, b"x"), None)
        served.handler.traced(session, metadata(1, 2), None)
        served.handler.session_closed(session)
        assert session.sent == []
