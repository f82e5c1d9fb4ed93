# SPDX-License-Identifier: MIT
"""From a valid submit to a run on the engine, and from its events to pushes. Knows no frames and no terminals' fate."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from chatdelta import (
    ChatRequest,
    Origin,
    RequestPolicy,
    StreamEvent,
    TraceContext,
    UnsupportedModel,
    Usage,
    UsageReport,
)
from chatserving import Answer, EngineHost, PeerGone, RequestRunner
from nnrp_openai.encoding import encode_event
from nnrp_openai.envelope import Submit, shown
from nnrp_openai.media import refuse_media
from nnrp_wire.carrier import Operation, OperationEnded


def unique_request_id() -> str:
    return uuid.uuid4().hex


class ChatAdapter:
    """Runs chat completions on the host's engine. Holds no request's state."""

    def __init__(
        self, host: EngineHost, runner: RequestRunner, *, new_request_id: Callable[[], str] = unique_request_id
    ) -> None:
        self._host = host
        self._runner = runner
        self._new_request_id = new_request_id

    async def run(self, submit: Submit, operation: Operation) -> Answer:
        """Serve one submit: stream its events if it wants a stream, return how it ended.

        Raises UnsupportedModel, UnsupportedOperation, ModelNotLoaded or EngineDead before anything runs; PeerGone once
        the operation was ended from outside. The trace that counts is the one the operation has now.
        """
        self._require_servable(submit)
        many_choices = submit.choices > 1

        async def emit(events: Sequence[StreamEvent], _usage: Usage) -> None:
            if not submit.stream:
                return
            for event in events:
                if submit.include_usage or not isinstance(event, UsageReport):
                    await _push(operation, encode_event(event, many_choices=many_choices))

        return await self._runner.run(self._request(submit, operation), emit, operation=submit.operation)

    def _require_servable(self, submit: Submit) -> None:
        info = self._host.engine().info
        if submit.model not in info.model_names:
            raise UnsupportedModel(f"model {shown(submit.model)} is not served here", param="model")
        if not info.multimodal:
            refuse_media(submit.body)

    def _request(self, submit: Submit, operation: Operation) -> ChatRequest:
        session = operation.session
        return ChatRequest(
            request_id=self._new_request_id(),
            body=submit.body,
            origin=Origin(
                door="nnrp",
                transport=session.transport,
                connection_id=session.connection_id,
                session_id=session.session_id,
                operation_id=operation.operation_id,
                frame_id=operation.frame_id,
                peer_request_id=submit.request_id,
            ),
            policy=RequestPolicy(
                timeout_s=submit.timeout_s,
                trace=trace_context(operation),
                cache_salt=submit.cache_salt,
                diagnostics=submit.diagnostics,
            ),
        )


def trace_context(operation: Operation) -> TraceContext | None:
    """The operation's trace as of now, else the bare id of its submit's header (observed, never forwarded)."""
    metadata = operation.trace
    if metadata is None:
        return TraceContext(operation.trace_id, 0) if operation.trace_id else None
    return TraceContext(
        trace_id=metadata.trace_id,
        span_id=metadata.span_id,
        parent_span_id=metadata.parent_span_id,
        stage=metadata.stage_code,
        flags=metadata.flags,
        attribute_bytes=metadata.body_bytes,
    )


async def _push(operation: Operation, event: bytes) -> None:
    try:
        await operation.push(event)
    except OperationEnded as exc:
        raise PeerGone(str(exc)) from exc
