# SPDX-License-Identifier: MIT
"""Markdown of the generated pages in docs/."""

from __future__ import annotations

from collections.abc import Iterable


def markdown_table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table of one line a row; cells are Markdown already."""
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
