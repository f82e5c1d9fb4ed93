# SPDX-License-Identifier: MIT
"""From what was seen to a result: the recipe's expectations and the profile's rules, nothing else. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_nnrp.conformance.answer_rules import broken_rules
from vllm_nnrp.conformance.event_rules import Asked
from vllm_nnrp.conformance.expectations import missed
from vllm_nnrp.conformance.models import Case, Json, Result
from vllm_nnrp.conformance.observed import Observed, kind_of


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case: its result as published, and what the table and the evidence show beside it."""

    case: Case
    result: Result
    observed: Observed
    findings: tuple[str, ...] = ()
    duration_s: float = 0.0

    @property
    def is_required(self) -> bool:
        return self.case.status == "mandatory"

    @property
    def is_passed(self) -> bool:
        return self.result.outcome == "passed"


def judge(
    case: Case, observed: Observed, extensions: frozenset[str], *, transport: str, duration_s: float = 0.0
) -> Verdict:
    """`extensions`: the names that the manifest of this run declares."""
    findings = (*missed(case.expect, observed), *broken_rules(Asked(case, extensions), observed))
    diagnostics: Json = {
        "selected_operation": case.operation,
        "transport": transport,
        "duration_ms": round(duration_s * 1000, 3),
    }
    if isinstance(model := case.request.body.get("model"), str):
        diagnostics["selected_model_id"] = model
    result = Result(
        id=case.id,
        outcome="failed" if findings else "passed",
        terminal=observed.terminal_kind or "error",
        events=tuple(event for event in observed.events if kind_of(event)),
        diagnostics=diagnostics,
        message="; ".join(findings) or None,
    )
    return Verdict(case, result, observed, findings, duration_s)


def skipped(case: Case, reason: str) -> Verdict:
    """A case that could not be run; nothing was seen."""
    result = Result(id=case.id, outcome="skipped", terminal="error", message=reason)
    return Verdict(case, result, Observed(()), (reason,))
