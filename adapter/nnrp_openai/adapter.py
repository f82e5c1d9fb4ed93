# SPDX-License-Identifier: MIT
"""From a valid submit to a run on the engine, and from its events to pushes. Knows no frames and no terminals' fate."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from chatdelta import (
    BackendError,
    ChatRequest,
    Completed,
    EngineDead,
    EngineInfo,
    ModelNotLoaded,
    Origin,
    RequestPolicy,
    ResponseHead,
    StreamEvent,
    Terminal,
    Timings,
    TraceContext,
    UnsupportedModel,
    Usage,
    UsageReport,
)
from chatserving import EngineHost, PeerGone, RequestRunner, response_head
from nnrp_openai.capabilities import capability_document
from nnrp_openai.chunks import openai_chunk
from nnrp_openai.encoding import encode_diagnostics, encode_event
from nnrp_openai.envelope import Submit, shown
from nnrp_openai.media import refuse_media
from nnrp_openai.profile import CHAT_COMPLETIONS, Stage
from nnrp_openai.progress import Progress
from nnrp_openai.terms import Terms
from nnrp_wire.carrier import Operation, OperationEnded


def unique_request_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Reply:
    """What ends an operation that nobody ended from outside."""

    terminal: Terminal
    timings: Timings | None = None


class ChatAdapter:
    """Runs chat completions on the host's engine. Holds no request's state."""

    def __init__(
        self,
        host: EngineHost,
        runner: RequestRunner,
        *,
        new_request_id: Callable[[], str] = unique_request_id,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._runner = runner
        self._new_request_id = new_request_id
        self._unix_time = unix_time

    async def run(
        self, submit: Submit, operation: Operation, terms: Terms, progress: Progress, *, timeout_s: float | None = None
    ) -> Reply:
        """Serve one submit: stream its events if it wants a stream, return how it ended.

        Raises UnsupportedModel, UnsupportedOperation, ModelNotLoaded or EngineDead before anything runs; PeerGone once
        the operation was ended from outside. The trace that counts is the one the operation has now.
        """
        self._require_servable(submit)
        request, created = self._request(submit, operation, terms, timeout_s), int(self._unix_time())
        head = response_head(request.request_id, created, submit.model)
        stream = _Stream(submit, operation, head, terms, progress)
        answer = await self._runner.run(
            request,
            stream.emit,
            operation=submit.operation,
            created=created,
            late_trace=lambda: trace_context(operation),
            arrived_s=terms.arrived_s,
        )
        if submit.diagnostics:
            try:
                await operation.push(encode_diagnostics(answer.observation))
            except OperationEnded as exc:
                raise PeerGone(str(exc)) from exc
        return Reply(answer.terminal, answer.timings)

    @property
    def info(self) -> EngineInfo | None:
        """Of the loaded engine; None without one."""
        try:
            return self._host.engine().info
        except (EngineDead, ModelNotLoaded):
            return None

    def capabilities(self) -> Reply:
        return Reply(Completed(capability_document(self.info), Usage()))

    def _require_servable(self, submit: Submit) -> None:
        info = self._host.engine().info
        if submit.model not in info.model_names:
            raise UnsupportedModel(f"model {shown(submit.model)} is not served here", param="model")
        if not info.multimodal:
            refuse_media(submit.body)

    def refused(self, error: BackendError, operation: Operation) -> None:
        """Record an operation whose submit was not run. Its own words are not trusted as labels."""
        self._runner.refuse(
            error, request_id=self._new_request_id(), operation=CHAT_COMPLETIONS, origin=_origin(operation)
        )

    def _request(self, submit: Submit, operation: Operation, terms: Terms, timeout_s: float | None) -> ChatRequest:
        return ChatRequest(
            request_id=self._new_request_id(),
            body=submit.body,
            origin=_origin(operation, submit.request_id),
            policy=RequestPolicy(
                priority=terms.priority,
                timeout_s=timeout_s,
                trace=trace_context(operation),
                cache_salt=submit.cache_salt,
                diagnostics=submit.diagnostics,
            ),
        )


class _Stream:
    """Pushes one request's events, as far as its client wants them."""

    def __init__(
        self, submit: Submit, operation: Operation, head: ResponseHead, terms: Terms, progress: Progress
    ) -> None:
        self._submit = submit
        self._operation = operation
        self._head = head
        self._terms = terms
        self._progress = progress

    async def emit(self, events: Sequence[StreamEvent], usage: Usage, _more_follows: bool) -> None:
        """Event by event: what is pushed in one turn of the loop leaves together anyway."""
        if not events:
            return
        submit = self._submit
        self._terms.spend(usage.completion_tokens)
        self._progress.reach(Stage.PRODUCING_PARTIAL)
        if not submit.stream:
            return
        try:
            for event in events:
                if submit.include_usage or not isinstance(event, UsageReport):
                    await self._operation.push(self._encoded(event))
            if submit.continuous_usage and not isinstance(events[-1], UsageReport):
                await self._operation.push(self._encoded(UsageReport(usage)))
        except OperationEnded as exc:
            raise PeerGone(str(exc)) from exc

    def _encoded(self, event: StreamEvent) -> bytes:
        self._progress.sent()
        submit = self._submit
        if not submit.openai_chunk:
            return encode_event(event, many_choices=submit.choices > 1)
        chunk = openai_chunk(event, self._head)
        return encode_event(event, many_choices=submit.choices > 1, chunk=UNSET if chunk is None else chunk)


def _origin(operation: Operation, peer_request_id: str = "") -> Origin:
    session = operation.session
    return Origin(
        door="nnrp",
        transport=session.transport,
        connection_id=session.connection_id,
        session_id=session.session_id,
        operation_id=operation.operation_id,
        frame_id=operation.frame_id,
        peer_request_id=peer_request_id,
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
