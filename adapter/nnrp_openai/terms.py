# SPDX-License-Identifier: MIT
"""What control frames may still change about an operation that has been submitted."""

from __future__ import annotations

from dataclasses import dataclass

from chatserving import PeerGone


class BudgetSpent(PeerGone):
    """The operation has generated as many tokens as its peer will pay for."""

    def __init__(self) -> None:
        super().__init__("budget_exceeded")


@dataclass(slots=True)
class Terms:
    """Of one operation. `priority` counts until dispatch: lower is more urgent."""

    arrived_s: float = 0.0  # monotonic
    priority: int = 0
    token_budget: int | None = None

    def spend(self, completion_tokens: int) -> None:
        """Raises BudgetSpent for the first token beyond the budget."""
        if self.token_budget is not None and completion_tokens > self.token_budget:
            raise BudgetSpent
