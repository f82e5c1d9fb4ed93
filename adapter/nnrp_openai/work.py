# SPDX-License-Identifier: MIT
"""What the handler keeps of a session and of each of its operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nnrp_openai.objects import ObjectTable
from nnrp_openai.terms import Terms
from nnrp_wire.carrier import Operation


class Work:
    """One operation being served. `is_at_engine` is true between dispatch and the engine's own end."""

    __slots__ = ("_last_word", "is_at_engine", "operation", "task", "terms", "was_dispatched")

    def __init__(self, operation: Operation, terms: Terms) -> None:
        self.operation = operation
        self.terms = terms
        self.is_at_engine = False
        self.was_dispatched = False
        self.task: asyncio.Task[None] | None = None
        self._last_word: Callable[[], None] | None = None

    def dispatch(self) -> None:
        self.is_at_engine = self.was_dispatched = True

    def after_engine(self, last_word: Callable[[], None] | None) -> None:
        """Call it once the engine has let go of this operation, which is there now and was cancelled."""
        self._last_word = last_word

    def leave_engine(self) -> None:
        self.is_at_engine = False
        if self._last_word is not None:
            self._last_word()


class SessionWorks:
    """One session: its operations by id, and what its peer said for all of them."""

    __slots__ = ("is_closed", "objects", "token_budget", "works")

    def __init__(self, max_objects: int) -> None:
        self.works: dict[int, Work] = {}
        self.objects = ObjectTable(max_objects)
        self.token_budget: int | None = None  # of each operation
        self.is_closed = False

    def budget_each(self, tokens: int) -> None:
        """Of the operations that run and of those to come."""
        self.token_budget = tokens
        for work in self.works.values():
            work.terms.token_budget = tokens
