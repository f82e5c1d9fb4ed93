# SPDX-License-Identifier: MIT
"""Calls to the backend until one has something to say: an empty answer is asked for again, up to five times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from localai_proto import backend_pb2 as pb
from tests.localai_core.replies import Response, Step, read_reply, read_stream

MAX_RETRIES = 5


class Backend(Protocol):
    """Where calls go. Each call is a new one."""

    def predict(self, options: pb.PredictOptions) -> pb.Reply: ...

    def predict_stream(self, options: pb.PredictOptions) -> Iterable[pb.Reply]: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The attempt that counts, and how many there were."""

    response: Response
    attempts: int


def budget_is_spent(completion_tokens: int, max_tokens: int) -> bool:
    """Whether the answer reached the limit the user gave; 0 is no limit."""
    return 0 < max_tokens <= completion_tokens


def compute(
    backend: Backend,
    options: pb.PredictOptions,
    *,
    on_step: Callable[[Step], None] | None = None,
    on_text: Callable[[str], None] | None = None,
    should_retry: Callable[[], bool] | None = None,
) -> Outcome:
    """Call until the answer is not empty. With `on_step` it is a stream, and what it has shown stays shown.

    `on_text` gets the whole `message` of each attempt that was not simply empty. `should_retry` is the endpoint's own
    word on such an attempt; it is not asked where a delta had content or a call.
    """
    for attempt in range(MAX_RETRIES + 1):
        if on_step is None:
            response = read_reply(backend.predict(options))
        else:
            response = read_stream(backend.predict_stream(options), on_step)
        is_spent = budget_is_spent(response.usage.completion_tokens, options.Tokens)
        is_empty = not response.text.strip() and not response.has_content_or_calls
        if is_empty and not is_spent and attempt < MAX_RETRIES:
            continue
        if on_text is not None:
            on_text(response.text)
        if should_retry is None or response.has_content_or_calls or is_spent:
            break
        if not should_retry():  # asked in the last attempt, too
            break
    return Outcome(response, attempt + 1)
