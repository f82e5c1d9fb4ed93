# SPDX-License-Identifier: MIT
"""What the control frames do that are the profile's to obey. Hints are observed: there is one route, one executor."""

from __future__ import annotations

from nnrp.core import ErrorCode, MessageType, SessionPriorityClass
from nnrp.runtime import BudgetMetadata, SchedulingMetadata

from chatdelta import EngineInfo
from nnrp_openai.capabilities import control_capabilities
from nnrp_openai.objects import ControlRefused
from nnrp_openai.work import SessionWorks, Work
from nnrp_wire.carrier import Control, Session

# What SDK clients open with; the engine's 0, so that it weighs as much as any request of the other door.
NEUTRAL_CLASS = int(SessionPriorityClass.BALANCED)

_CAPABILITIES = frozenset({MessageType.CAPABILITY_NEGOTIATION, MessageType.DEGRADE_PROFILE})
_OBJECTS = frozenset(
    {
        MessageType.OBJECT_DECLARE,
        MessageType.OBJECT_REF,
        MessageType.OBJECT_RELEASE,
        MessageType.OBJECT_PATCH,
        MessageType.OBJECT_DELTA,
    }
)


def obey(session: Session, control: Control, works: SessionWorks, work: Work | None, info: EngineInfo | None) -> None:
    """Apply one frame to its session, or to `work` if it names an operation. Raises ControlRefused."""
    message_type = control.message_type
    if message_type in _CAPABILITIES:
        session.send_capabilities(control, tuple(control_capabilities(info)))
    elif message_type is MessageType.PRIORITY_UPDATE:
        _prioritize(control.metadata, work, info)
    elif message_type is MessageType.BUDGET_UPDATE:
        _budget(control.metadata, works, work)
    elif message_type in _OBJECTS:
        works.objects.apply(message_type, control.metadata)


def opening_priority(session: Session, info: EngineInfo | None) -> int:
    """Of an operation about which its client says no more than its session's class."""
    return session.priority_class - NEUTRAL_CLASS if _schedules_by_priority(info) else 0


def _schedules_by_priority(info: EngineInfo | None) -> bool:
    return info is not None and info.priority_scheduling


def _prioritize(metadata: SchedulingMetadata, work: Work | None, info: EngineInfo | None) -> None:
    if not _schedules_by_priority(info):
        raise ControlRefused("the engine does not schedule by priority", ErrorCode.UNSUPPORTED_CAPABILITY)
    if work is None or work.was_dispatched:
        raise ControlRefused("the operation has been dispatched")
    work.terms.priority = metadata.priority_class - NEUTRAL_CLASS + metadata.priority_delta


def _budget(metadata: BudgetMetadata, works: SessionWorks, work: Work | None) -> None:
    """Of generated tokens; without an operation, of each of the session's."""
    if metadata.token_budget:
        if work is None:
            works.budget_each(metadata.token_budget)
        else:
            work.terms.token_budget = metadata.token_budget
    if metadata.compute_budget_units or metadata.memory_budget_bytes or metadata.bandwidth_budget_bytes:
        raise ControlRefused("only a token budget is enforced", ErrorCode.UNSUPPORTED_CAPABILITY)
