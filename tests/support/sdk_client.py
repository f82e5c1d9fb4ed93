# SPDX-License-Identifier: MIT
"""A blocking NNRP client for tests, made of the SDK's own native client.

Everything here blocks, so an asyncio test runs it in a thread while its server lives on the loop:

    def scenario() -> list[SdkEvent]:
        with SdkClient.connect(listener.port) as client:
            session = client.open_session()
            operation = session.submit(b'{"schema_version": "openai-compatible/1", ...}')
            return session.collect(operation)

    events = await asyncio.to_thread(scenario)

One thread per client at a time: the SDK's session has one lock, and a poll holds it. The server must be running when a
client closes, since the SDK waits for the answer to each SESSION_CLOSE. `native` on client and session is the SDK's own
object, for whatever has no method here.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

from nnrp.client import (
    NativeClientConnection,
    NativeClientOptions,
    NativeClientProviderRoute,
    NativeClientSessionOptions,
    SubmitHeaderContext,
    SubmitIdentity,
    SubmitPolicy,
    SubmitRequest,
    TypedPayloadInputFrame,
    TypedPayloadSubmitInput,
    connect_native_client_connection,
)
from nnrp.core import MessageType, PayloadKind, TransportPolicy
from nnrp.core.packet import unpack_body, unpack_typed_payload_frames
from nnrp.native import NativeTransportClientSecurity
from nnrp.runtime import (
    ControlRequestMetadata,
    NativeRuntimeEvent,
    RuntimeRole,
    SchedulingMetadata,
    SupersedeMetadata,
    TraceContextMetadata,
)
from nnrp.schema import StreamSemantics

TERMINALS = frozenset({MessageType.RESULT_PUSH, MessageType.RESULT_DROP, MessageType.RESULT_DROP_REASON})
POLL_MS = 2  # longer polls hold the session's lock and delay this client's own sends
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class SdkOperation:
    """The two ids of one submit."""

    operation_id: int
    frame_id: int


@dataclass(frozen=True, slots=True)
class SdkEvent:
    """One frame the client received. `body` is its tail: event JSON, packed result body, or diagnostic."""

    message_type: MessageType
    frame_id: int
    metadata: Any
    body: bytes

    @property
    def is_terminal(self) -> bool:
        return self.message_type in TERMINALS

    @property
    def payload(self) -> bytes:
        """The JSON in it: a partial's body, a drop's diagnostic, or the one typed payload of a RESULT_PUSH."""
        if self.message_type is not MessageType.RESULT_PUSH or not self.body:
            return self.body
        view = unpack_body(self.body)
        (frame,) = unpack_typed_payload_frames(
            view.typed_payload_descriptor_region,
            view.typed_payload_frame_region,
            payload_kind_bitmap=self.metadata.payload_kind_bitmap,
        )
        return bytes(frame.payload)


class SdkSession:
    """One open session. Made by SdkClient.open_session()."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self._ids = count(1)
        self._sequences = count(1)
        self._unclaimed: defaultdict[int, deque[SdkEvent]] = defaultdict(deque)  # by frame id

    # Out

    def submit(self, payload: bytes, *, trace_id: int = 0, ids: SdkOperation | None = None) -> SdkOperation:
        """FRAME_SUBMIT with one structured event, in the exact form of openai-compatible/1. Ids count up from 1."""
        operation = ids or self.reserve()
        identity = SubmitIdentity(operation.operation_id, operation.frame_id, SubmitHeaderContext(trace_id=trace_id))
        frame = TypedPayloadInputFrame(
            profile_id=0,
            payload_kind=PayloadKind.STRUCTURED_EVENT,
            payload=payload,
            stream_semantics=StreamSemantics.SNAPSHOT,
        )
        request = SubmitRequest.typed_payload(TypedPayloadSubmitInput(identity, SubmitPolicy(), (frame,)))
        self.native.submit_operation(request)
        return operation

    def reserve(self) -> SdkOperation:
        """The ids of the next submit, for control frames that come before it."""
        number = next(self._ids)
        return SdkOperation(1000 + number, number)

    def cancel(self, operation: SdkOperation, *, reason: int = 1, diagnostic: bytes = b"") -> None:
        self.native.cancel_operation(self._control(operation.operation_id, reason, diagnostic), diagnostic)

    def abort(self, operation: SdkOperation, *, reason: int = 1, diagnostic: bytes = b"") -> None:
        self.native.abort_operation(self._control(operation.operation_id, reason, diagnostic), diagnostic)

    def cancel_all(self, *, reason: int = 1) -> None:
        """CANCEL of the whole session."""
        self.native.cancel_operation(self._control(0, reason, b""))

    def frame_cancel(self, operation: SdkOperation) -> None:
        self.native.cancel(frame_id=operation.frame_id)

    def supersede(self, old: SdkOperation, new: SdkOperation) -> None:
        metadata = SupersedeMetadata(old.operation_id, new.operation_id, next(self._sequences), 2, 0, 0)
        self.native.supersede(metadata)

    def deadline(self, operation: SdkOperation, unix_ms: int) -> None:
        """DEADLINE; may come before the submit of `operation` (see reserve())."""
        metadata = SchedulingMetadata(operation.operation_id, next(self._sequences), 0, 0, unix_ms, 0)
        self.native._send_runtime_frame(MessageType.DEADLINE, metadata, frame_id=operation.frame_id)

    def expire_at(self, operation: SdkOperation, unix_ms: int, *, flags: int = 0) -> None:
        self.native.expire_at(SchedulingMetadata(operation.operation_id, next(self._sequences), 0, 0, unix_ms, flags))

    def trace(self, trace_id: int, span_id: int, operation: SdkOperation | None = None) -> None:
        """TRACE_CONTEXT of the session, or of an operation already submitted."""
        metadata = TraceContextMetadata(trace_id, span_id, 0, 0, 0, 0)
        self.native.send_trace_context(metadata, operation_id=operation.operation_id if operation else None)

    def close(self) -> None:
        """SESSION_CLOSE; blocks until it is acknowledged."""
        self.native.close()

    def _control(self, operation_id: int, reason: int, diagnostic: bytes) -> ControlRequestMetadata:
        return ControlRequestMetadata(
            operation_id, next(self._sequences), reason, RuntimeRole.CLIENT, 0, len(diagnostic)
        )

    # In

    def poll(self) -> SdkEvent | None:
        """The next frame, if one arrives within a few milliseconds. Local lifecycle notices are skipped."""
        for event in self.native.poll_events_batch(max_events=1, timeout_ms=POLL_MS):
            if isinstance(event, NativeRuntimeEvent):
                tail = event.tail
                return SdkEvent(
                    event.header.message_type,
                    event.header.frame_id,
                    event.metadata.value,
                    tail.body or tail.diagnostic,
                )
        return None

    def frames(self, *, timeout_s: float = TIMEOUT_S) -> Iterator[SdkEvent]:
        """Frames of the whole session as they arrive; raises TimeoutError when none comes for `timeout_s`."""
        give_up_s = time.monotonic() + timeout_s
        while time.monotonic() < give_up_s:
            event = self.poll()
            if event is not None:
                give_up_s = time.monotonic() + timeout_s
                yield event
        raise TimeoutError("the server sends nothing")

    def events(self, operation: SdkOperation, *, timeout_s: float = TIMEOUT_S) -> Iterator[SdkEvent]:
        """Frames of one operation up to and including its terminal. Others are kept for their own call."""
        while True:
            kept = self._unclaimed[operation.frame_id]
            if not kept:
                self._keep(next(self.frames(timeout_s=timeout_s)))
                continue
            event = kept.popleft()
            yield event
            if event.is_terminal:
                return

    def collect(self, operation: SdkOperation, *, timeout_s: float = TIMEOUT_S) -> list[SdkEvent]:
        return list(self.events(operation, timeout_s=timeout_s))

    def wait_for(self, message_type: MessageType, *, timeout_s: float = TIMEOUT_S) -> SdkEvent:
        """The next frame of that type; frames before it are kept."""
        for kept in self._unclaimed.values():
            for event in kept:
                if event.message_type is message_type:
                    kept.remove(event)
                    return event
        for event in self.frames(timeout_s=timeout_s):
            if event.message_type is message_type:
                return event
            self._keep(event)
        raise AssertionError("unreachable")

    def _keep(self, event: SdkEvent) -> None:
        self._unclaimed[event.frame_id].append(event)


def _options(url: str, trust: bytes | None) -> NativeClientOptions:
    scheme, _, rest = url.partition("://")
    security = None if trust is None else NativeTransportClientSecurity(rest.rpartition(":")[0], trust)
    transport, provider = {
        "nnrp": ("tcp", None),
        "nnrps": ("tcp", None),
        "unix": ("ipc", url),
        "ws": ("websocket", f"{url}/any"),
        "wss": ("websocket", f"{url}/any"),
        "quic": ("quic", url),
    }[scheme]
    application = f"nnrp{'' if trust is None else 's'}://{'localhost' if scheme == 'unix' else rest}/test"
    return NativeClientOptions(
        application,
        {transport: NativeClientProviderRoute(provider, security)},
        TransportPolicy[f"FORCE_{transport.upper()}"],
    )


class SdkClient:
    """One connection of the SDK's client."""

    def __init__(self, native: NativeClientConnection, stack: ExitStack) -> None:
        self.native = native
        self._stack = stack

    @classmethod
    def connect(cls, port: int, host: str = "127.0.0.1") -> Self:
        """To a tcp listener."""
        return cls.connect_url(f"nnrp://{host}:{port}")

    @classmethod
    def connect_url(cls, url: str, trust: bytes | None = None) -> Self:
        """nnrp, nnrps, unix, ws, wss or quic; the encrypted ones with the DER certificate of the root to trust."""
        with ExitStack() as stack:
            native = stack.enter_context(connect_native_client_connection(_options(url, trust)))
            return cls(native, stack.pop_all())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def open_session(self, *, max_in_flight: int = 64, session_id: int = 0, **options: Any) -> SdkSession:
        """`options` are fields of the SDK's NativeClientSessionOptions. Raises its NativeRuntimeError if rejected."""
        chosen = NativeClientSessionOptions(
            requested_session_id=session_id, max_in_flight_operations=max_in_flight, **options
        )
        return SdkSession(asyncio.run(self.native.open_session(chosen)))

    def close(self) -> None:
        """Closes every open session (each waits for its acknowledgement), then the connection."""
        self._stack.close()
