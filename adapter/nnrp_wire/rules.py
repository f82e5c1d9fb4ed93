# SPDX-License-Identifier: MIT
"""One row per frame a client may send: its record, where it is allowed, whom it names, what it sets off.

A frame type without a row is refused. The table holds no logic beyond the checks of single fields that the SDK's
codecs leave out; what an action does is in connection.py and session.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from nnrp.core import (
    CacheAckMetadata,
    CacheInvalidateMetadata,
    CachePutMetadata,
    ClientHelloMetadata,
    ErrorCode,
    FlowUpdateMetadata,
    FlowUpdateScopeKind,
    FrameSubmitMetadata,
    MessageType,
    SessionMigrateMetadata,
    SessionOpenMetadata,
    SessionPatchMetadata,
    TransportProbeMetadata,
)
from nnrp.runtime import (
    BudgetMetadata,
    CacheMissMetadata,
    CacheReferenceMetadata,
    CapabilityMetadata,
    ControlRequestMetadata,
    ObjectDeltaMetadata,
    ObjectDescriptorMetadata,
    ObjectReferenceMetadata,
    ObjectReleaseMetadata,
    PartialResultMetadata,
    PressureMetadata,
    ProgressMetadata,
    RecoverableErrorMetadata,
    ResultDropReasonMetadata,
    RetryAfterMetadata,
    RouteHintMetadata,
    SchedulingMetadata,
    SessionCloseMetadata,
    SupersedeMetadata,
    TraceContextMetadata,
)

from nnrp_wire.limits import KNOWN_CAPABILITY_TOKENS
from nnrp_wire.wire import Frame, FrameRefused, WireFault


class Scope(Enum):
    CONNECTION = auto()  # session id 0 only
    SESSION = auto()  # an open session
    EITHER = auto()


class Target(Enum):
    NONE = auto()  # the frame id means nothing
    OPERATION = auto()  # operation id and frame id name one operation
    WHOLE_SESSION_OR_OPERATION = auto()  # 0 and 0: the whole session
    OPTIONAL_OPERATION = auto()  # operation id 0: none
    FRAME = auto()  # the frame id alone names an operation
    OPERATION_OR_EARLY = auto()  # as OPERATION; may come before its submit
    SESSION_OR_FRAME_OR_EARLY = auto()  # frame id 0: session scope; may come before its submit


class Action(Enum):
    HELLO = auto()
    PROBE = auto()
    OPEN = auto()
    CLOSE = auto()
    SUBMIT = auto()
    END = auto()
    SCHEDULE = auto()
    TRACE = auto()
    PONG = auto()
    PRESSURE = auto()
    CACHE_MISS = auto()
    CACHE_REJECT = auto()
    PATCH_REJECT = auto()
    OBSERVE = auto()
    REFUSE = auto()


ANY_BODY = ("any",)
Check = Callable[[Any, Frame], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    codec: Any  # the SDK's record class; None: no metadata
    scope: Scope
    target: Target
    action: Action
    body: tuple[str, ...] = ()  # the fields whose sum is the body's length
    check: Check | None = None
    operation_field: str = "operation_id"
    fatal: bool = False  # malformed: the connection ends, not only this frame

    def decode(self, frame: Frame) -> Any:
        """The frame's metadata record; raises FrameRefused, or WireFault for a fatal rule."""
        try:
            return self._decode(frame)
        except ValueError as error:  # of the SDK's codecs and ours; their texts name fields and numbers only
            if self.fatal:
                raise WireFault(str(error)) from error
            raise FrameRefused(str(error), ErrorCode.MALFORMED_BODY) from error

    def _decode(self, frame: Frame) -> Any:
        if self.codec is None:
            if frame.metadata or frame.body:
                raise ValueError("this frame carries neither metadata nor body")
            return None
        metadata = self.codec.unpack(frame.metadata)
        if self.body is not ANY_BODY:
            declared = sum(getattr(metadata, name) for name in self.body)
            if declared != len(frame.body):
                raise ValueError(f"{declared} body bytes declared, {len(frame.body)} sent")
        if self.check is not None and not self.check(metadata, frame):
            raise ValueError("a field is out of its range")
        return metadata


def _role_ok(metadata: Any, _frame: Frame) -> bool:
    role = int(metadata.source_role)
    return (1 <= role <= 7 or role >= 0x80) and not int(metadata.flags) & ~0x03


def _submit_ok(metadata: Any, _frame: Frame) -> bool:
    reserved = (metadata.reserved0, metadata.reserved1, metadata.reserved2, metadata.reserved3, metadata.reserved4)
    return not any(reserved) and not metadata.object_ref_mask & ~0x0F


def _deadline_ok(metadata: Any, _frame: Frame) -> bool:
    return bool(metadata.deadline_unix_ms)


def _trace_ok(metadata: Any, frame: Frame) -> bool:
    stage_ok = metadata.stage_code <= 0x0B or metadata.stage_code >= 0x100
    return bool(metadata.trace_id and metadata.span_id and stage_ok and frame.trace_id in (0, metadata.trace_id))


def _flow_ok(metadata: Any, frame: Frame) -> bool:
    of_connection: bool = metadata.scope_kind is FlowUpdateScopeKind.CONNECTION
    # The codec drops these two reserved fields unseen.
    reserved_zero = frame.metadata[3] == 0 and frame.metadata[10:12] == b"\0\0"
    return of_connection == (frame.session_id == 0) and reserved_zero


def _backpressure_ok(metadata: Any, _frame: Frame) -> bool:
    level: int = metadata.pressure_level
    return 1 <= level <= 3


def _partial_ok(metadata: Any, _frame: Frame) -> bool:
    return bool(metadata.object_id or (metadata.body_bytes and not metadata.flags & 2))


def _drop_ok(metadata: Any, frame: Frame) -> bool:
    return bool(metadata.drop_reason_code) and _role_ok(metadata, frame)


def _patch_ok(metadata: Any, _frame: Frame) -> bool:
    return metadata.reserved0 == 0 and not int(metadata.patch_mask) & ~0x7F


def _capabilities_ok(metadata: Any, frame: Frame) -> bool:
    tokens = decode_tokens(frame.body)
    count: int = metadata.capability_count
    return len(tokens) == count and tokens == sorted(set(tokens)) and KNOWN_CAPABILITY_TOKENS.issuperset(tokens)


def decode_tokens(body: bytes) -> list[str]:
    """Entries of a u16 length and that many bytes. Raises ValueError."""
    tokens: list[str] = []
    position = 0
    while position < len(body):
        end = position + 2 + int.from_bytes(body[position : position + 2], "little")
        if end > len(body):
            raise ValueError("a capability token is cut off")
        tokens.append(body[position + 2 : end].decode("ascii"))
        position = end
    return tokens


def encode_tokens(tokens: tuple[str, ...]) -> bytes:
    return b"".join(len(token).to_bytes(2, "little") + token.encode("ascii") for token in tokens)


_DIAGNOSTIC = ("diagnostic_bytes",)
_BODY = ("body_bytes",)
_METADATA = ("metadata_bytes",)
_DELTA = ("metadata_bytes", "delta_bytes")
_HELLO_BODY = ("auth_bytes", "control_extension_bytes")
_OPEN_BODY = ("resume_token_bytes", "auth_bytes", "session_extension_bytes")
_S = Scope.SESSION
_NONE, _PAIR, _WIDE = Target.NONE, Target.OPERATION, Target.WHOLE_SESSION_OR_OPERATION
_LOOK = Action.OBSERVE
_M = MessageType

_CONTROL = Rule(ControlRequestMetadata, _S, _WIDE, Action.END, _DIAGNOSTIC, _role_ok)
_CAPABILITY = Rule(CapabilityMetadata, _S, _NONE, _LOOK, _BODY, _capabilities_ok)
_ROUTE = Rule(RouteHintMetadata, _S, _WIDE, _LOOK, _BODY)

RULES: dict[int, Rule] = {
    _M.CLIENT_HELLO: Rule(
        ClientHelloMetadata, Scope.CONNECTION, _NONE, Action.HELLO, _HELLO_BODY, fatal=True
    ),
    _M.TRANSPORT_PROBE: Rule(
        TransportProbeMetadata, Scope.CONNECTION, _NONE, Action.PROBE, ("probe_payload_bytes",), fatal=True
    ),
    _M.SESSION_OPEN: Rule(SessionOpenMetadata, Scope.CONNECTION, _NONE, Action.OPEN, _OPEN_BODY, fatal=True),
    _M.SESSION_CLOSE: Rule(SessionCloseMetadata, _S, _NONE, Action.CLOSE),
    _M.FRAME_SUBMIT: Rule(FrameSubmitMetadata, _S, _NONE, Action.SUBMIT, ANY_BODY, _submit_ok),
    _M.CANCEL: _CONTROL,
    _M.ABORT: _CONTROL,
    _M.FRAME_CANCEL: Rule(None, _S, Target.FRAME, Action.END),
    _M.SUPERSEDE: Rule(SupersedeMetadata, _S, _PAIR, Action.END, _DIAGNOSTIC, operation_field="old_operation_id"),
    _M.DEADLINE: Rule(SchedulingMetadata, _S, Target.OPERATION_OR_EARLY, Action.SCHEDULE, check=_deadline_ok),
    _M.EXPIRE_AT: Rule(SchedulingMetadata, _S, _PAIR, Action.SCHEDULE, check=_deadline_ok),
    _M.PRIORITY_UPDATE: Rule(SchedulingMetadata, _S, _PAIR, _LOOK),
    _M.TRACE_CONTEXT: Rule(
        TraceContextMetadata, Scope.EITHER, Target.SESSION_OR_FRAME_OR_EARLY, Action.TRACE, _BODY, _trace_ok
    ),
    _M.CREDIT_UPDATE: Rule(PressureMetadata, _S, _NONE, Action.PRESSURE),
    _M.BACKPRESSURE: Rule(PressureMetadata, _S, _NONE, Action.PRESSURE, check=_backpressure_ok),
    _M.FLOW_UPDATE: Rule(FlowUpdateMetadata, Scope.EITHER, Target.OPTIONAL_OPERATION, Action.PRESSURE, check=_flow_ok),
    _M.BUDGET_UPDATE: Rule(BudgetMetadata, _S, _WIDE, _LOOK),
    _M.ROUTE_HINT: _ROUTE,
    _M.EXECUTION_HINT: _ROUTE,
    _M.CAPABILITY_NEGOTIATION: _CAPABILITY,
    _M.DEGRADE_PROFILE: _CAPABILITY,
    _M.OBJECT_DECLARE: Rule(ObjectDescriptorMetadata, _S, _NONE, _LOOK, _METADATA),
    _M.OBJECT_REF: Rule(ObjectReferenceMetadata, _S, _WIDE, _LOOK, _METADATA),
    _M.OBJECT_RELEASE: Rule(ObjectReleaseMetadata, _S, _WIDE, _LOOK, _DIAGNOSTIC),
    _M.OBJECT_PATCH: Rule(ObjectDeltaMetadata, _S, _NONE, _LOOK, _DELTA),
    _M.OBJECT_DELTA: Rule(ObjectDeltaMetadata, _S, _NONE, _LOOK, _DELTA),
    _M.CACHE_REFERENCE: Rule(CacheReferenceMetadata, _S, _NONE, Action.CACHE_MISS, _METADATA),
    _M.CACHE_MISS: Rule(CacheMissMetadata, _S, _NONE, _LOOK, _DIAGNOSTIC),
    _M.CACHE_INVALIDATE: Rule(CacheInvalidateMetadata, _S, _NONE, _LOOK),
    _M.CACHE_PUT: Rule(CachePutMetadata, _S, _NONE, Action.CACHE_REJECT, ("object_bytes",)),
    _M.CACHE_ACK: Rule(CacheAckMetadata, _S, _NONE, _LOOK),
    _M.PROGRESS: Rule(ProgressMetadata, _S, _PAIR, _LOOK, _BODY),
    _M.PARTIAL_RESULT: Rule(PartialResultMetadata, _S, _PAIR, _LOOK, _BODY, _partial_ok),
    _M.RESULT_DROP_REASON: Rule(ResultDropReasonMetadata, _S, _PAIR, _LOOK, _DIAGNOSTIC, _drop_ok),
    _M.ERROR_RECOVERABLE: Rule(RecoverableErrorMetadata, _S, _NONE, _LOOK, _DIAGNOSTIC, _role_ok),
    _M.RETRY_AFTER: Rule(RetryAfterMetadata, _S, _NONE, _LOOK, _DIAGNOSTIC, _role_ok),
    _M.PING: Rule(None, Scope.EITHER, _NONE, Action.PONG),
    _M.PONG: Rule(None, Scope.EITHER, _NONE, _LOOK),
    _M.SESSION_PATCH: Rule(
        SessionPatchMetadata, _S, _NONE, Action.PATCH_REJECT, ("profile_patch_bytes",), _patch_ok
    ),
    # Its answer knows no refusal, and there is no registry across connections: the client's wait runs out.
    _M.SESSION_MIGRATE: Rule(SessionMigrateMetadata, Scope.EITHER, _NONE, Action.REFUSE),
}  # fmt: skip
