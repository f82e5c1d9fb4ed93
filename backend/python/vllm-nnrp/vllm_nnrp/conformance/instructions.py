# SPDX-License-Identifier: MIT
"""What a recipe tells the runner in `request.nnrp`, and the envelope that is left without it. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from vllm_nnrp.conformance.models import SCHEMA_VERSION, Case, Json
from vllm_nnrp.conformance.recipes import ConformanceError

MASKED = "***"


@dataclass(frozen=True, slots=True)
class Instructions:
    """Control frames to send. `…_after_events`: once so many profile events have come; `_ms`: milliseconds from now.

    The names are the ones in the recipe. `cancel_after_events` is the published one, the others are ours.
    """

    cancel_after_events: int | None = None
    abort_after_events: int | None = None
    supersede_after_events: int | None = None
    deadline_after_ms: int | None = None
    token_budget: int | None = None

    @property
    def is_superseding(self) -> bool:
        return self.supersede_after_events is not None


_NAMES = frozenset(field.name for field in fields(Instructions))


def instructions_of(case: Case) -> Instructions:
    """Raises ConformanceError for one that is no count."""
    given = {name: value for name, value in (case.request.nnrp or {}).items() if name in _NAMES}
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConformanceError(f"case {case.id}: {name} must be a count")
    return Instructions(**given)


def envelope_of(case: Case, token: str | None) -> Json:
    """What is submitted: no instruction in it, and the token unless the case brings one of its own."""
    policy = {name: value for name, value in (case.request.nnrp or {}).items() if name not in _NAMES}
    if token is not None:
        policy.setdefault("token", token)
    envelope: Json = {
        "schema_version": SCHEMA_VERSION,
        "operation": case.operation,
        "request_id": case.id[:256],
        "body": case.request.body,
    }
    return envelope | ({"nnrp": policy} if policy else {})


def without_token(envelope: Json) -> Json:
    """The same for the evidence."""
    policy = envelope.get("nnrp")
    if not isinstance(policy, dict) or "token" not in policy:
        return envelope
    return envelope | {"nnrp": policy | {"token": MASKED}}


def encoded(envelope: Json) -> bytes:
    return json.dumps(envelope, ensure_ascii=False).encode()
