# SPDX-License-Identifier: MIT
"""How an operation that was ended from outside gets its terminal: one table from the reason to the drop."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nnrp.runtime import ResultDropReasonCode, TraceContextMetadata

from nnrp_openai.encoding import encode_cancelled
from nnrp_openai.profile import ReasonCode, Stage
from nnrp_wire.carrier import Ended, EndReason, Operation


@dataclass(frozen=True, slots=True)
class Ending:
    """The drop that answers one EndReason."""

    code: ResultDropReasonCode
    source: str  # who ended it: peer, deadline or server
    reason: str  # unless the frame's own reason code says more
    awaits_abort: bool = True  # for a bounded time, so that the diagnostic can tell whether the engine took it
    traced: bool = False  # TRACE_CONTEXT goes first
    retryable: bool = False


_CODE = ResultDropReasonCode
ENDINGS: Mapping[EndReason, Ending | None] = MappingProxyType(
    {
        EndReason.CANCELLED: Ending(_CODE.PEER_CANCELLED, "peer", "user_cancelled", traced=True),
        EndReason.ABORTED: Ending(_CODE.PEER_CANCELLED, "peer", "aborted", awaits_abort=False, traced=True),
        EndReason.SUPERSEDED: Ending(_CODE.SUPERSEDED, "peer", "superseded"),
        EndReason.DEADLINE: Ending(_CODE.DEADLINE_EXPIRED, "deadline", "deadline_expired"),
        EndReason.STALLED: Ending(_CODE.BACKPRESSURE, "server", "stalled", awaits_abort=False),
        EndReason.SESSION_CLOSED: Ending(_CODE.PEER_CANCELLED, "peer", "session_closed"),
        EndReason.SHUTDOWN: Ending(_CODE.TRANSPORT_CLOSED, "server", "shutdown", retryable=True),
        EndReason.DISCONNECTED: None,  # nobody is there
    }
)


def reason_text(ended: Ended, ending: Ending) -> str:
    """A peer's CANCEL or ABORT may name its own reason; elsewhere the table's word is the whole truth."""
    if ending.traced and ended.reason_code in set(ReasonCode):
        return ReasonCode(ended.reason_code).name.lower()
    return ending.reason


def drop_diagnostic(ended: Ended, ending: Ending, *, operation_id: int, backend_aborted: bool | None) -> bytes:
    return encode_cancelled(
        reason_text(ended, ending), source=ending.source, operation_id=operation_id, backend_aborted=backend_aborted
    )


def ending_trace(operation: Operation) -> TraceContextMetadata:
    """The TRACE_CONTEXT the published wire cases want before the drop of a cancelled operation.

    A span of ours, child of the client's where it sent one. Both ids are non-zero, as the frame requires.
    """
    trace = operation.trace
    return TraceContextMetadata(
        trace_id=operation.trace_id or operation.operation_id,
        span_id=secrets.randbits(64) or 1,
        parent_span_id=trace.span_id if trace else 0,
        stage_code=Stage.DROPPED,
        flags=0,
        body_bytes=0,
    )
