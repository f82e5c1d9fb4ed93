# SPDX-License-Identifier: MIT
"""What control frames do to operations: budget, priority, capabilities, objects; PROGRESS; a trace that comes late."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from nnrp.core import ErrorCode, MessageType
from nnrp.runtime import (
    BudgetMetadata,
    CapabilityMetadata,
    ObjectDescriptorMetadata,
    ObjectReferenceMetadata,
    ObjectReleaseMetadata,
    RouteHintMetadata,
    RuntimeRole,
    SchedulingMetadata,
    TraceContextMetadata,
)

from chatdelta import Outcome, TraceContext
from chatdelta.testing import SCRIPTED_INFO, Gap, Wait, text_script
from nnrp_openai import ProfileLimits
from nnrp_wire.carrier import Control, EndReason
from nnrp_wire.counts import FrameCounts
from tests.nnrp_openai.fake_carrier import FakeOperation, FakeSession, envelope, fake_operation
from tests.nnrp_openai.serving import Served, serving
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio

PRIORITY_INFO = replace(SCRIPTED_INFO, priority_scheduling=True)
ONE_AT_A_TIME = ProfileLimits(max_operations=1)


def budget(tokens: int = 0, *, operation_id: int = 7, compute: int = 0) -> Control:
    return Control(MessageType.BUDGET_UPDATE, BudgetMetadata(operation_id, compute, 0, 0, tokens, 0), frame_id=3)


def priority(priority_class: int, delta: int = 0) -> Control:
    metadata = SchedulingMetadata(7, 1, priority_class, delta, 0, 0)
    return Control(MessageType.PRIORITY_UPDATE, metadata, frame_id=3)


def errors(session: FakeSession) -> list[tuple[ErrorCode, str]]:
    return [(what[0], what[1]) for kind, what in session.sent if kind == "error"]


async def ended(served: Served, operation: FakeOperation) -> list[tuple[str, Any]]:
    await until(lambda: operation.has_terminal and served.handler.in_flight == 0)
    return operation.session.sent


# Budget


@pytest.mark.parametrize("scope", ["operation", "session", "session, before the submit"])
async def test_the_first_token_beyond_the_budget_ends_the_operation(scope: str) -> None:
    gate = asyncio.Event()
    async with serving([Wait(gate), *text_script("a", "b", "c", "d")]) as served:
        operation = fake_operation(envelope())
        frame = budget(2)
        if scope == "session, before the submit":
            served.handler.controlled(operation.session, frame, None)
            served.handler.submitted(operation)
        else:
            served.handler.submitted(operation)
            served.handler.controlled(operation.session, frame, operation if scope == "operation" else None)
        gate.set()
        *pushed, (kind, what) = await ended(served, operation)
        assert [event["delta"] for _, event in pushed] == ["a", "b"]
        cancelled = {
            "type": "response.cancelled",
            "reason": "budget_exceeded",
            "source": "server",
            "operation_id": 7,
            "backend_aborted": True,
        }
        assert (kind, what) == ("drop", (6, cancelled, False))
        assert served.engine.aborted == [served.engine.requests[0].request_id]
        assert [(r.outcome, r.cancel_reason) for r in served.records.all] == [(Outcome.CANCELLED, "budget_exceeded")]


@pytest.mark.parametrize("tokens", [2, 3])
async def test_an_answer_within_its_budget_is_whole(tokens: int) -> None:
    gate = asyncio.Event()
    async with serving([Wait(gate), *text_script("a", "b")]) as served:
        operation = fake_operation(envelope())
        served.handler.submitted(operation)
        served.handler.controlled(operation.session, budget(tokens), operation)
        gate.set()
        assert (await ended(served, operation))[-1][0] == "finish"


async def test_a_budget_counts_without_a_stream_too() -> None:
    gate = asyncio.Event()
    async with serving([Wait(gate), *text_script("a", "b")]) as served:
        operation = fake_operation(envelope({"stream": False}))
        served.handler.submitted(operation)
        served.handler.controlled(operation.session, budget(1), operation)
        gate.set()
        ((kind, (code, _, _)),) = await ended(served, operation)
        assert (kind, code) == ("drop", 6)


async def test_other_budgets_are_told_to_be_without_effect() -> None:
    async with serving([Wait(asyncio.Event())]) as served:
        operation = fake_operation(envelope())
        served.handler.submitted(operation)
        served.handler.controlled(operation.session, budget(compute=5), operation)
        assert errors(operation.session) == [(ErrorCode.UNSUPPORTED_CAPABILITY, "only a token budget is enforced")]
        assert operation.ended is None


# Priority


async def queued(served: Served) -> tuple[FakeOperation, FakeOperation]:
    """One operation at the engine, one that waits for it."""
    first, second = fake_operation(envelope()), fake_operation(envelope())
    served.handler.submitted(first)
    served.handler.submitted(second)
    await until(lambda: len(served.engine.requests) == 1)
    return first, second


async def test_priority_counts_until_dispatch() -> None:
    gate = asyncio.Event()
    async with serving([Wait(gate), *text_script("a")], info=PRIORITY_INFO, limits=ONE_AT_A_TIME) as served:
        first, second = await queued(served)
        served.handler.controlled(first.session, priority(2), first)
        served.handler.controlled(second.session, priority(2), second)
        served.handler.controlled(second.session, priority(2, -1), second)
        gate.set()
        await ended(served, second)
        assert [request.policy.priority for request in served.engine.requests] == [0, 0]
        assert errors(first.session) == [(ErrorCode.INVALID_STATE, "the operation has been dispatched")]
        assert errors(second.session) == []


@pytest.mark.parametrize(("scheduled", "expected"), [(True, [-1, 0, 1]), (False, [0, 0, 0])])
async def test_a_sessions_class_counts_where_the_engine_schedules_by_it(scheduled: bool, expected: list[int]) -> None:
    async with serving(text_script("a"), info=replace(SCRIPTED_INFO, priority_scheduling=scheduled)) as served:
        for priority_class in (0, 1, 2):
            operation = fake_operation(envelope(), FakeSession(priority_class=priority_class))
            served.handler.submitted(operation)
            await ended(served, operation)
        assert [request.policy.priority for request in served.engine.requests] == expected


async def test_an_update_replaces_the_sessions_class() -> None:
    gate = asyncio.Event()
    async with serving([Wait(gate), *text_script("a")], info=PRIORITY_INFO, limits=ONE_AT_A_TIME) as served:
        first = fake_operation(envelope())
        second = fake_operation(envelope(), FakeSession(priority_class=2))
        for operation in (first, second):
            served.handler.submitted(operation)
        await until(lambda: len(served.engine.requests) == 1)
        served.handler.controlled(second.session, priority(0, 5), second)
        gate.set()
        await ended(served, second)
        assert [request.policy.priority for request in served.engine.requests] == [0, 4]


async def test_priority_is_refused_where_it_means_nothing() -> None:
    gate = asyncio.Event()
    counts = FrameCounts()
    async with serving([Wait(gate), *text_script("a")], limits=ONE_AT_A_TIME, frames=counts) as served:
        _, second = await queued(served)
        served.handler.controlled(second.session, priority(2), second)
        assert counts.refused == {("priority_update", "unsupported_capability"): 1}
        unsupported = (ErrorCode.UNSUPPORTED_CAPABILITY, "the engine does not schedule by priority")
        assert errors(second.session) == [unsupported]
        gate.set()
        await ended(served, second)
        assert [request.policy.priority for request in served.engine.requests] == [0, 0]


# Capabilities, hints, objects


@pytest.mark.parametrize("kind", [MessageType.CAPABILITY_NEGOTIATION, MessageType.DEGRADE_PROFILE])
async def test_capabilities_are_answered_for_what_is_loaded(kind: MessageType) -> None:
    async with serving([], info=PRIORITY_INFO) as served:
        session = FakeSession()
        served.handler.controlled(session, Control(kind, CapabilityMetadata(2, 0, 0, 0, 0, 0, 0, 0)), None)
        ((answer, tokens),) = session.sent
        assert answer == "capabilities"
        assert {"control.priority_update", "control.cancel_abort", "control.budget_update"} <= set(tokens)


@pytest.mark.parametrize("kind", [MessageType.ROUTE_HINT, MessageType.EXECUTION_HINT])
async def test_hints_are_observed(kind: MessageType) -> None:
    async with serving([Wait(asyncio.Event())]) as served:
        operation = fake_operation(envelope())
        served.handler.submitted(operation)
        served.handler.controlled(
            operation.session, Control(kind, RouteHintMetadata(7, 1, 2, 3, 0, 0, 0), frame_id=3), operation
        )
        assert (operation.session.sent, operation.ended) == ([], None)


def declare(object_id: int) -> Control:
    role = RuntimeRole.CLIENT
    return Control(MessageType.OBJECT_DECLARE, ObjectDescriptorMetadata(object_id, 0, role, role, 1, 0, 0, 0, 0, 0, 0))


def reference(object_id: int) -> Control:
    return Control(MessageType.OBJECT_REF, ObjectReferenceMetadata(object_id, 0, 0, 0, 0, 0, 0))


def release(object_id: int) -> Control:
    return Control(MessageType.OBJECT_RELEASE, ObjectReleaseMetadata(object_id, 0, 0, RuntimeRole.CLIENT, 0, 0))


UNKNOWN = (ErrorCode.INVALID_STATE, "the object is not declared in this session")
OBJECTS: dict[str, tuple[list[Control], list[tuple[ErrorCode, str]]]] = {
    "declared, referred to, released": ([declare(1), reference(1), release(1)], []),
    "declared twice": ([declare(1), declare(1)], []),
    "never declared": ([reference(1)], [UNKNOWN]),
    "released": ([declare(1), release(1), reference(1)], [UNKNOWN]),
    "released twice": ([declare(1), release(1), release(1)], [UNKNOWN]),
    "too many": (
        [declare(1), declare(2), declare(3), reference(2)],
        [(ErrorCode.LIMIT_EXCEEDED, "at most 2 objects per session")],
    ),
    "room again": ([declare(1), declare(2), release(1), declare(3)], []),
}


@pytest.mark.parametrize(("frames", "expected"), OBJECTS.values(), ids=OBJECTS.keys())
async def test_objects_are_remembered_within_bounds(
    frames: list[Control], expected: list[tuple[ErrorCode, str]]
) -> None:
    async with serving([], limits=ProfileLimits(max_objects_per_session=2)) as served:
        session, other = FakeSession(), FakeSession()
        served.handler.controlled(other, declare(1), None)
        for frame in frames:
            served.handler.controlled(session, frame, None)
        assert errors(session) == expected
        assert errors(other) == []


async def test_a_closed_session_leaves_nothing() -> None:
    async with serving(text_script("a")) as served:
        operation = fake_operation(envelope())
        served.handler.session_opened(operation.session)
        served.handler.controlled(operation.session, declare(1), None)
        served.handler.submitted(operation)
        served.handler.session_closed(operation.session)
        await ended(served, operation)
        assert served.handler._sessions == {}


# PROGRESS

ADMITTED, EXECUTING, PRODUCING = 2, 5, 7


def stages(operation: FakeOperation) -> list[int]:
    return [what for kind, what in operation.session.sent if kind == "progress"]


async def test_stages_come_where_they_are_asked_for() -> None:
    async with serving(text_script("a", "b")) as served:
        operation = fake_operation(envelope(nnrp={"progress": True}))
        served.handler.submitted(operation)
        await ended(served, operation)
        assert stages(operation) == [ADMITTED, EXECUTING, PRODUCING]


@pytest.mark.parametrize("transport", ["tcp", "quic"])
async def test_nothing_is_sent_unasked_but_a_sign_of_life_on_quic(transport: str) -> None:
    limits = ProfileLimits(progress_interval_s=0.02)
    async with serving([Gap(0.2), *text_script("a")], limits=limits) as served:
        operation = fake_operation(envelope(), FakeSession(transport=transport))
        served.handler.submitted(operation)
        await ended(served, operation)
        assert set(stages(operation)) == ({EXECUTING} if transport == "quic" else set())


async def test_a_silent_operation_shows_that_it_lives() -> None:
    limits = ProfileLimits(progress_interval_s=0.02)
    async with serving([Wait(asyncio.Event())], limits=limits) as served:
        operation = fake_operation(envelope(nnrp={"progress": True}))
        served.handler.submitted(operation)
        await until(lambda: stages(operation).count(EXECUTING) >= 3)


async def test_no_progress_follows_the_end() -> None:
    limits = ProfileLimits(progress_interval_s=0.01)
    async with serving([Wait(asyncio.Event())], limits=limits) as served:
        operation = fake_operation(envelope(nnrp={"progress": True}))
        served.handler.submitted(operation)
        await until(lambda: served.engine.running)
        operation.end(served.handler, EndReason.CANCELLED)
        sent = len(await ended(served, operation))
        await asyncio.sleep(0.05)
        assert len(operation.session.sent) == sent


# A trace that comes after dispatch is observed, and the engine keeps what it got


async def test_a_late_trace_is_observed_only() -> None:
    gate = asyncio.Event()
    async with serving([Wait(gate), *text_script("a")]) as served:
        operation = fake_operation(envelope())
        served.handler.submitted(operation)
        await until(lambda: served.engine.running)
        operation.trace = TraceContextMetadata(5, 6, 0, 0, 1, 0)
        gate.set()
        await ended(served, operation)
        assert served.engine.requests[0].policy.trace is None
        assert served.records.all[0].trace == TraceContext(5, 6, 0, 0, 1, 0)
