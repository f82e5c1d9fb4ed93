# SPDX-License-Identifier: MIT
"""Text that may be the beginning of a marker is held back until it is known."""

from __future__ import annotations

from collections.abc import Iterable


def held_back(text: str, markers: Iterable[str]) -> int:
    """How many characters at the end of `text` begin one of `markers` without being all of it."""
    return max((_overlap(text, marker) for marker in markers), default=0)


def _overlap(text: str, marker: str) -> int:
    longest = min(len(text), len(marker) - 1)
    if longest < 1 or marker[0] not in text[-longest:]:  # nearly always, and this runs once per token and marker
        return 0
    return next((length for length in range(longest, 0, -1) if text.endswith(marker[:length])), 0)
