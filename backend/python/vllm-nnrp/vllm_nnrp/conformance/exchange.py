# SPDX-License-Identifier: MIT
"""One case over the wire, with the SDK's own client on a connection of its own. Blocks; everything it sees is kept.

After the case's terminal a second operation is submitted and waited for: frames of one session come in the order they
were written, so whatever the server still had to say about the case has come by then. Nothing waits for luck.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from nnrp.core import MessageType
from nnrp.native import NativeRuntimeError
from nnrp.runtime import (
    BudgetMetadata,
    ControlRequestMetadata,
    NativeRuntimeEvent,
    ResultDropReasonCode,
    RuntimeRole,
    SchedulingMetadata,
    SupersedeMetadata,
)

from vllm_nnrp.client.nnrp_client import POLL_MS, USER_CANCELLED_CODE, open_session, submit_request
from vllm_nnrp.client.nnrp_events import encode_capabilities_get
from vllm_nnrp.client.transport import ClientError, NnrpTarget
from vllm_nnrp.conformance.frames import read_frame
from vllm_nnrp.conformance.instructions import Instructions, encoded, envelope_of, instructions_of, without_token
from vllm_nnrp.conformance.models import Case, Json
from vllm_nnrp.conformance.observed import PARTIAL, TERMINAL_FRAMES, Observed, Seen

OPERATION_ID, FRAME_ID = 1, 1  # of the case
NEXT_OPERATION_ID, NEXT_FRAME_ID = 2, 2  # of what follows it
SESSION_SCOPE = 0
MAX_REFUSED = 3  # frames in a row that the client's library refuses: it is not going to get better
MAX_CROSSED = 1_000  # the same after a SUPERSEDE of ours, see _Exchange._refused


def run_case(target: NnrpTarget, case: Case, *, timeout_s: float) -> Observed:
    """Everything that came for `case`. A server that is not there or goes away is a problem of the case, too.

    Raises ConformanceError for instructions that make no sense.
    """
    instructions = instructions_of(case)
    observer = _Observer()
    try:
        with open_session(target, max_in_flight=2) as session:
            _Exchange(session, observer, instructions, timeout_s, target.token).run(case)
    except ClientError as exc:
        observer.problems.append(str(exc))
    return observer.observed()


class _Observer:
    """Collects frames with the time since the case began."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._frames: list[Seen] = []
        self.problems: list[str] = []
        self.events = 0
        self.is_ended = False
        self.last_sequence = 0  # the terminal's, which counts the partials before it

    def sent(self, frame: str, detail: Json) -> None:
        self._frames.append(Seen(frame, self._now_us(), None, detail, sent=True))

    def received(self, native: NativeRuntimeEvent) -> None:
        tail = native.tail
        seen, problems = read_frame(
            native.header.message_type,
            native.header.frame_id,
            native.metadata.value,
            bytes(tail.body or tail.diagnostic or b""),
            self._now_us(),
        )
        self._frames.append(seen)
        self.problems += problems
        self.events += seen.event is not None
        if seen.is_terminal and not self.is_ended:
            self.is_ended = True
            self.last_sequence = int(seen.detail.get("result_sequence", 0))

    def partials(self) -> int:
        """How many have come."""
        return sum(frame.frame == PARTIAL for frame in self._frames)

    def observed(self) -> Observed:
        return Observed(tuple(self._frames), tuple(self.problems))

    def _now_us(self) -> int:
        return int((time.monotonic() - self._started_s) * 1e6)


class _Exchange:
    """The way of one case through one session."""

    def __init__(
        self, session: Any, observer: _Observer, instructions: Instructions, timeout_s: float, token: str | None
    ) -> None:
        self._session = session
        self._observer = observer
        self._instructions = instructions
        self._timeout_s = timeout_s
        self._next = encode_capabilities_get(token)
        self._token = token
        self._is_next_ended = False
        self._is_superseded = False
        self._crossed = 0

    def run(self, case: Case) -> None:
        envelope = envelope_of(case, self._token)
        if self._instructions.deadline_after_ms is not None:
            self._deadline(self._instructions.deadline_after_ms)
        self._session.submit_operation(submit_request(encoded(envelope), OPERATION_ID, FRAME_ID))
        self._observer.sent("FRAME_SUBMIT", {"frame_id": FRAME_ID, "envelope": without_token(envelope)})
        if self._instructions.token_budget is not None:
            self._budget(self._instructions.token_budget)
        due = self._due()
        is_next_sent = False
        while not self._observer.is_ended:
            while due and self._observer.events >= due[0][0]:
                due.pop(0)[1]()
                is_next_sent = is_next_sent or self._instructions.is_superseding
            if not self._poll_until(
                lambda: self._observer.is_ended or bool(due and self._observer.events >= due[0][0])
            ):
                self._observer.problems.append(f"no terminal within {self._timeout_s:g} s")
                return
        self._check_crossed()
        if not is_next_sent:
            self._submit_next()
        if not self._poll_until(lambda: self._is_next_ended):
            self._observer.problems.append("the session answers nothing after the case")

    def _due(self) -> list[tuple[int, Callable[[], None]]]:
        """What is to be sent after how many events."""
        each = self._instructions
        steps: list[tuple[int | None, Callable[[], None]]] = [
            (each.cancel_after_events, lambda: self._cancel("CANCEL", self._session.cancel_operation)),
            (each.abort_after_events, lambda: self._cancel("ABORT", self._session.abort_operation)),
            (each.supersede_after_events, self._supersede),
        ]
        return sorted(((count, step) for count, step in steps if count is not None), key=lambda step: step[0])

    # Out

    def _cancel(self, name: str, send: Callable[..., None]) -> None:
        self._observer.sent(name, {"operation_id": OPERATION_ID, "reason": USER_CANCELLED_CODE})
        send(ControlRequestMetadata(OPERATION_ID, 1, USER_CANCELLED_CODE, RuntimeRole.CLIENT, 0, 0), b"")

    def _supersede(self) -> None:
        self._observer.sent("SUPERSEDE", {"operation_id": OPERATION_ID, "new_operation_id": NEXT_OPERATION_ID})
        reason = ResultDropReasonCode.SUPERSEDED
        self._session.supersede(SupersedeMetadata(OPERATION_ID, NEXT_OPERATION_ID, 1, reason, 0, 0))
        self._is_superseded = True
        self._submit_next()

    def _deadline(self, after_ms: int) -> None:
        unix_ms = int(time.time() * 1000) + after_ms
        self._observer.sent("DEADLINE", {"frame_id": FRAME_ID, "operation_id": OPERATION_ID, "unix_ms": unix_ms})
        metadata = SchedulingMetadata(OPERATION_ID, 1, 0, 0, unix_ms, 0)
        # The public method wants the operation to be there already; a DEADLINE may come before it.
        self._session._send_runtime_frame(MessageType.DEADLINE, metadata, frame_id=FRAME_ID)

    def _budget(self, tokens: int) -> None:
        self._observer.sent("BUDGET_UPDATE", {"operation_id": OPERATION_ID, "token_budget": tokens})
        self._session.update_budget(BudgetMetadata(OPERATION_ID, 0, 0, 0, tokens, 0))

    def _submit_next(self) -> None:
        self._session.submit_operation(submit_request(self._next, NEXT_OPERATION_ID, NEXT_FRAME_ID))

    # In

    def _poll_until(self, is_done: Callable[[], bool]) -> bool:
        """Take frames until `is_done()`; False when it does not come true in time, or no frame is readable."""
        give_up_s = time.monotonic() + self._timeout_s
        refused = 0
        while not is_done():
            if time.monotonic() > give_up_s or refused == MAX_REFUSED or self._crossed == MAX_CROSSED:
                return False
            try:
                for native in self._polled():
                    self._take(native)
                refused = 0
            except NativeRuntimeError as exc:
                refused += self._refused(exc)
        return True

    def _refused(self, exc: NativeRuntimeError) -> int:
        """How many frames are refused that should not be.

        After its own SUPERSEDE the SDK's client refuses the partials of the old operation that were on their way by
        then, and does not say which frame it was: they are counted, and compared when the terminal says how many.
        """
        if self._is_superseded and not self._observer.is_ended:
            self._crossed += 1
            return 0
        self._observer.problems.append(f"the client's library refuses a frame: {exc}")
        return 1

    def _check_crossed(self) -> None:
        """The terminal has the next number after the partials: each must have come, or have crossed our SUPERSEDE."""
        missing = self._observer.last_sequence - 1 - self._observer.partials()
        if self._is_superseded and missing != self._crossed:
            self._observer.problems.append(
                f"{self._crossed} frames are refused after the SUPERSEDE, but {missing} partials are missing"
            )

    def _polled(self) -> Iterator[NativeRuntimeEvent]:
        for native in self._session.poll_events_batch(max_events=1, timeout_ms=POLL_MS):
            if isinstance(native, NativeRuntimeEvent):
                yield native

    def _take(self, native: NativeRuntimeEvent) -> None:
        frame_id = native.header.frame_id
        if frame_id in (FRAME_ID, SESSION_SCOPE):
            self._observer.received(native)
        elif frame_id == NEXT_FRAME_ID and native.header.message_type.name in TERMINAL_FRAMES:
            self._is_next_ended = True
