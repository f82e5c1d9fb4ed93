# SPDX-License-Identifier: MIT
"""The frozen facts of openai-compatible/1 (contract openai-compatible-1.json) and the bounds of our door to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

PROFILE = "openai-compatible"
SCHEMA_VERSION = "openai-compatible/1"
COMPATIBILITY_LEVELS = (1,)
CHAT_COMPLETIONS = "chat.completions.create"
OPERATIONS = (CHAT_COMPLETIONS,)
CAPABILITIES_GET = "capabilities.get"  # our extension: the capability document, over the wire

CANCELLED_STATUS = 499
SUCCESS_STATUS = 200


class ReasonCode(IntEnum):
    """The protocol's reason codes of CANCEL, ABORT and RETRY_AFTER."""

    USER_CANCELLED = 1
    SUPERSEDED = 2
    DEADLINE_EXPIRED = 3
    BUDGET_EXCEEDED = 4
    DEPENDENCY_FAILED = 5
    TRANSPORT_CLOSING = 6
    SHUTDOWN = 7


class Stage(IntEnum):
    """The protocol's stage codes of PROGRESS and TRACE_CONTEXT that we use."""

    ADMITTED = 2
    EXECUTING = 5
    PRODUCING_PARTIAL = 7
    DROPPED = 10


@dataclass(frozen=True, slots=True)
class ProfileLimits:
    """Bounds of one profile handler. Times are seconds unless the name says otherwise."""

    max_request_bytes: int = 8 * 1024 * 1024  # the submit's body, prelude and descriptor included
    max_json_depth: int = 64
    # Parsing holds the event loop, and in a thread the interpreter: 8 MiB of text take 30 ms, 8 MiB of `{"a":{}}` 3 s.
    max_json_containers: int = 50_000
    max_choices: int = 128  # OpenAI's own bound of `n`
    max_operations_per_session: int = 64
    max_operations: int = 256  # at the engine
    max_queued: int = 256  # waiting for the engine
    max_objects_per_session: int = 256  # remembered OBJECT_DECLAREs
    progress_interval_s: float = 10.0  # between signs of life of a silent operation
    trace_hold_s: float = 0.0  # wait for a TRACE_CONTEXT before dispatch; 0: the carrier has already held the submit
    abort_wait_s: float = 0.25  # a drop waits this long for the engine's abort, to report it
    retry_after_ms: int = 1000
