# SPDX-License-Identifier: MIT
"""The pure core: requests, engine deltas, the mapper to events, errors, observations.

It knows no transport and no engine: no I/O, no clock, no await, and no import of vllm, torch, grpc or nnrp. (The
`testing` module is the exception to "no await"; it is imported by name only.)
"""

from chatdelta.body import logprob_entry, usage_body
from chatdelta.deltas import EngineDelta, FinishReason, Timings, TokenLogprob, ToolCallFragment, Usage
from chatdelta.engine import Engine, EngineInfo
from chatdelta.errors import (
    ERROR_ROWS,
    BackendError,
    BackendFailure,
    EngineDead,
    ErrorCode,
    ErrorInfo,
    ErrorRow,
    InvalidRequest,
    ModelNotLoaded,
    Overloaded,
    RequestCancelled,
    RequestTimeout,
    Unauthenticated,
    UnsupportedModel,
    UnsupportedOperation,
)
from chatdelta.events import (
    Cancelled,
    Completed,
    Event,
    Failed,
    ReasoningDelta,
    StreamEvent,
    Terminal,
    TextDelta,
    ToolCallCompleted,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallStarted,
    UsageReport,
)
from chatdelta.mapper import StreamMapper
from chatdelta.observation import Observation, ObservationSink, Observer, Outcome
from chatdelta.requests import (
    RESERVED_TEMPLATE_KWARGS,
    ChatRequest,
    GenerationRequest,
    Origin,
    PromptRequest,
    RequestPolicy,
    TraceContext,
)

__all__ = [
    "ERROR_ROWS",
    "RESERVED_TEMPLATE_KWARGS",
    "BackendError",
    "BackendFailure",
    "Cancelled",
    "ChatRequest",
    "Completed",
    "Engine",
    "EngineDead",
    "EngineDelta",
    "EngineInfo",
    "ErrorCode",
    "ErrorInfo",
    "ErrorRow",
    "Event",
    "Failed",
    "FinishReason",
    "GenerationRequest",
    "InvalidRequest",
    "ModelNotLoaded",
    "Observation",
    "ObservationSink",
    "Observer",
    "Origin",
    "Outcome",
    "Overloaded",
    "PromptRequest",
    "ReasoningDelta",
    "RequestCancelled",
    "RequestPolicy",
    "RequestTimeout",
    "StreamEvent",
    "StreamMapper",
    "Terminal",
    "TextDelta",
    "Timings",
    "TokenLogprob",
    "ToolCallCompleted",
    "ToolCallDelta",
    "ToolCallFailed",
    "ToolCallFragment",
    "ToolCallStarted",
    "TraceContext",
    "Unauthenticated",
    "UnsupportedModel",
    "UnsupportedOperation",
    "Usage",
    "UsageReport",
    "logprob_entry",
    "usage_body",
]
