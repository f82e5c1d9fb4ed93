# SPDX-License-Identifier: MIT
"""The chat over NNRP with the SDK's own client, which blocks: each question has a thread of its own.

Every question opens its own connection (a few milliseconds): nothing has to be kept alive while the user thinks, and
nothing is stale afterwards. All calls of a question come from its one thread, because the SDK's session has one lock
and a poll holds it.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from nnrp.client import (
    NativeClientSessionOptions,
    SubmitIdentity,
    SubmitPolicy,
    SubmitRequest,
    TypedPayloadInputFrame,
    TypedPayloadSubmitInput,
    connect_native_client_connection,
)
from nnrp.core import MessageType, PayloadKind
from nnrp.native import NativeRuntimeError
from nnrp.runtime import ControlRequestMetadata, NativeRuntimeEvent, RuntimeRole
from nnrp.schema import StreamSemantics

from vllm_nnrp.addresses import SocketUrl
from vllm_nnrp.client.conversation import Question
from vllm_nnrp.client.events import Cancelled, ClientEvent, Done, Ending, Error
from vllm_nnrp.client.nnrp_events import (
    decode_document,
    decode_drop,
    decode_partial,
    decode_result,
    encode_capabilities_get,
    encode_envelope,
)
from vllm_nnrp.client.nnrp_options import client_options
from vllm_nnrp.client.transport import ClientError, NnrpTarget

POLL_MS = 2  # also how late a cancel goes out
ANSWER_S = 10.0  # for a connection, and for what needs no engine
CANCEL_WAIT_S = 5.0
CLOSE_S = 2.0  # the SDK itself would wait 30 s for a server that does not acknowledge
OPERATION_ID = 1
FRAME_ID = 1
USER_CANCELLED_CODE = 1

Emit = Callable[[ClientEvent], None]
Result = TypeVar("Result")


class Refused(ClientError):
    """The server was reached and said no."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class NnrpClient:
    """ChatClient for one listener. Made by open_nnrp_client()."""

    def __init__(self, target: NnrpTarget) -> None:
        self._target = target

    async def check(self) -> None:
        """Raises ClientError unless a session can be opened."""

        def opens() -> None:
            with open_session(self._target):
                pass

        await _in_time(self._target, opens)

    async def capabilities(self) -> dict[str, Any]:
        """The server's capability document, as it came. Raises ClientError, Refused where the server says no."""
        return await _in_time(self._target, lambda: _fetch_document(self._target))

    async def ask(self, question: Question, cancel: asyncio.Event) -> AsyncGenerator[ClientEvent, None]:
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[ClientEvent] = asyncio.Queue()
        closed = asyncio.Event()
        stop = threading.Event()

        def later(call: Callable[..., object], *args: object) -> None:
            with suppress(RuntimeError):  # the loop is gone, and the user with it
                loop.call_soon_threadsafe(call, *args)

        def run() -> None:
            payload = encode_envelope(question, self._target.token)
            _exchange(self._target, payload, stop, lambda event: later(events.put_nowait, event))
            later(closed.set)

        threading.Thread(target=run, name="nnrp-question", daemon=True).start()
        watch = asyncio.create_task(_watch(cancel, stop, events))
        try:
            while True:
                event = await events.get()
                if isinstance(event, Done | Error | Cancelled):
                    break
                yield event
        finally:
            watch.cancel()
            stop.set()
        yield event
        with suppress(TimeoutError):
            await asyncio.wait_for(closed.wait(), CLOSE_S)


async def _watch(cancel: asyncio.Event, stop: threading.Event, events: asyncio.Queue[ClientEvent]) -> None:
    """Hand a cancel to the thread; a server that does not confirm it in time is not waited for."""
    await cancel.wait()
    stop.set()
    await asyncio.sleep(CANCEL_WAIT_S)
    events.put_nowait(Cancelled("not confirmed by the server"))


async def _in_time(target: NnrpTarget, work: Callable[[], Result]) -> Result:
    """What `work`, which blocks, returns in a thread of its own. Raises its ClientError, or one after ANSWER_S."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Result] = loop.create_future()

    def settle(settling: Callable[[], None]) -> None:
        if not answer.done():
            settling()

    def run() -> None:
        try:
            result = work()
            settling = partial(answer.set_result, result)
        except Exception as exc:  # the thread's last word, whatever it is
            settling = partial(answer.set_exception, exc)
        with suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(settle, settling)

    threading.Thread(target=run, name="nnrp-request", daemon=True).start()
    try:
        return await asyncio.wait_for(answer, ANSWER_S)
    except TimeoutError as exc:
        raise ClientError(f"cannot talk NNRP to {target}: no answer within {ANSWER_S:.0f} s") from exc


def _fetch_document(target: NnrpTarget) -> dict[str, Any]:
    """Blocks. Raises ClientError."""
    give_up_s = time.monotonic() + ANSWER_S
    with open_session(target) as session:
        session.submit_operation(submit_request(encode_capabilities_get(target.token)))
        while time.monotonic() < give_up_s:
            for native in session.poll_events_batch(max_events=1, timeout_ms=POLL_MS):
                answer = _document(native) if isinstance(native, NativeRuntimeEvent) else None
                if isinstance(answer, dict):
                    return answer
                if answer is not None:
                    raise Refused(answer)
    raise ClientError(f"{target} does not answer")


def _document(native: NativeRuntimeEvent) -> dict[str, Any] | Error | None:
    """None for a frame that is no terminal."""
    if native.header.message_type is MessageType.RESULT_PUSH:
        metadata: Any = native.metadata.value
        return decode_document(native.tail.body, metadata.payload_kind_bitmap)
    ending = _decode(native)
    if isinstance(ending, Done | Cancelled):
        return Error("dropped", "the server dropped the operation")
    return ending if isinstance(ending, Error) else None


def _exchange(target: NnrpTarget, payload: bytes, stop: threading.Event, emit: Emit) -> None:
    """Submit, and emit what comes back up to the ending. Blocks; `stop` sends CANCEL."""
    ended = False
    try:
        with open_session(target) as session:
            session.submit_operation(submit_request(payload))
            for event in _events(session, stop):
                ended = isinstance(event, Done | Error | Cancelled)
                emit(event)
    except ClientError as exc:
        if not ended:
            emit(Error("unreachable", str(exc)))
    except Exception as exc:  # the thread's last word: without it the user would wait for ever
        if not ended:
            emit(Error("client_failure", f"{type(exc).__name__}: {exc}"))


def _events(session: Any, stop: threading.Event) -> Iterator[ClientEvent]:
    is_cancel_sent = False
    while True:
        if stop.is_set() and not is_cancel_sent:
            session.cancel_operation(
                ControlRequestMetadata(OPERATION_ID, 1, USER_CANCELLED_CODE, RuntimeRole.CLIENT, 0, 0), b""
            )
            is_cancel_sent = True
        for native in session.poll_events_batch(max_events=1, timeout_ms=POLL_MS):
            event = _decode(native) if isinstance(native, NativeRuntimeEvent) else None
            if event is not None:
                yield event
            if isinstance(event, Done | Error | Cancelled):
                return


def _decode(native: NativeRuntimeEvent) -> ClientEvent | None:
    """Frames that are no part of an answer (trace, retry hints, progress) are None."""
    metadata: Any = native.metadata.value
    match native.header.message_type:
        case MessageType.PARTIAL_RESULT:
            return decode_partial(native.tail.body)
        case MessageType.RESULT_PUSH:
            return decode_result(native.tail.body, metadata.payload_kind_bitmap)
        case MessageType.RESULT_DROP_REASON:
            return decode_drop(metadata.drop_reason_code, native.tail.diagnostic)
        case MessageType.RESULT_DROP:
            return _bare_drop()
        case _:
            return None


def _bare_drop() -> Ending:
    return Error("dropped", "the server dropped the operation")


def submit_request(payload: bytes, operation_id: int = OPERATION_ID, frame_id: int = FRAME_ID) -> SubmitRequest:
    """A FRAME_SUBMIT of openai-compatible/1 around the envelope's bytes."""
    frame = TypedPayloadInputFrame(
        profile_id=0,
        payload_kind=PayloadKind.STRUCTURED_EVENT,
        payload=payload,
        stream_semantics=StreamSemantics.SNAPSHOT,
    )
    identity = SubmitIdentity(operation_id, frame_id)
    return SubmitRequest.typed_payload(TypedPayloadSubmitInput(identity, SubmitPolicy(), (frame,)))


@contextmanager
def open_session(target: NnrpTarget, *, max_in_flight: int = 1) -> Iterator[Any]:
    """An open session of a connection of its own. Blocks. Raises ClientError for all the SDK raises, inside too."""
    is_open = False
    try:
        with connect_native_client_connection(client_options(target)) as connection:
            session = asyncio.run(
                connection.open_session(NativeClientSessionOptions(max_in_flight_operations=max_in_flight))
            )
            is_open = True
            yield session
    except NativeRuntimeError as exc:
        if is_open:
            raise ClientError(f"the connection to {target} is gone") from exc
        raise ClientError(f"cannot talk NNRP to {target}: {_why_not(target)}") from exc


def _why_not(target: NnrpTarget) -> str:
    """The SDK gives numbers; the system's own words come from one more try."""
    url = target.url
    try:
        if isinstance(url, SocketUrl):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(url.path)
        elif url.scheme == "quic":
            return "nothing there opens an NNRP session, or its certificate is not trusted"  # UDP tells no more
        else:
            with socket.create_connection((url.address.host, url.address.port), timeout=2.0):
                pass
    except OSError as exc:
        return (exc.strerror or str(exc) or type(exc).__name__).lower()
    if url.is_encrypted:
        return "something listens there, but it does not open an NNRP session, or its certificate is not trusted"
    return "something listens there, but it does not open an NNRP session"


async def open_nnrp_client(target: NnrpTarget) -> NnrpClient:
    """Raises ClientError if no session can be opened there."""
    client = NnrpClient(target)
    await client.check()
    return client
