# SPDX-License-Identifier: MIT
"""What came over the wire for one case, and what follows from it. Pure values; nothing here is made up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vllm_nnrp.conformance.models import Json, TerminalKind

PARTIAL, PUSH, DROP, BARE_DROP = "PARTIAL_RESULT", "RESULT_PUSH", "RESULT_DROP_REASON", "RESULT_DROP"
TERMINAL_FRAMES = frozenset({PUSH, DROP, BARE_DROP})
TERMINAL_EVENTS: dict[str, TerminalKind] = {
    "response.completed": "success",
    "response.error": "error",
    "response.cancelled": "cancelled",
}
PEER_CANCELLED = 3  # the drop code that says so without an event


def kind_of(event: Json) -> str:
    """An event's type; what is no text is none."""
    kind = event.get("type")
    return kind if isinstance(kind, str) else ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One frame, sent by the runner or received for the case's operation. `event` is the profile event in it."""

    frame: str
    at_us: int
    event: Json | None = None
    detail: Json = field(default_factory=dict)
    sent: bool = False

    @property
    def is_terminal(self) -> bool:
        return not self.sent and self.frame in TERMINAL_FRAMES


@dataclass(frozen=True, slots=True)
class Observed:
    """Every frame of the case's operation in the order of arrival, also those after its terminal.

    `problems` are what the client's own library refused, and what never came.
    """

    frames: tuple[Seen, ...]
    problems: tuple[str, ...] = ()

    @property
    def received(self) -> Iterator[Seen]:
        return (frame for frame in self.frames if not frame.sent)

    @property
    def events(self) -> tuple[Json, ...]:
        """The profile events, the terminal's included."""
        return tuple(frame.event for frame in self.received if frame.event is not None)

    @property
    def terminal(self) -> Seen | None:
        """The first terminal frame."""
        return next((frame for frame in self.received if frame.is_terminal), None)

    @property
    def terminal_kind(self) -> TerminalKind | None:
        """How the operation ended, by its terminal frame and the event in it; None: it did not."""
        terminal = self.terminal
        if terminal is None:
            return None
        if terminal.event is not None:
            return TERMINAL_EVENTS.get(kind_of(terminal.event), "error")
        if terminal.frame == PUSH:
            return "success"
        return "cancelled" if terminal.detail.get("drop_reason_code") == PEER_CANCELLED else "error"

    def of(self, *kinds: str) -> tuple[Json, ...]:
        """The events of these types."""
        return tuple(event for event in self.events if kind_of(event) in kinds)

    @property
    def completed(self) -> Json | None:
        """The body of response.completed."""
        body: Any = next((event.get("body") for event in self.of("response.completed")), None)
        return body if isinstance(body, dict) else None

    @property
    def choices(self) -> tuple[Json, ...]:
        """Of the completed body, as far as they are objects."""
        choices: Any = (self.completed or {}).get("choices")
        return tuple(choice for choice in choices if isinstance(choice, dict)) if isinstance(choices, list) else ()
