# SPDX-License-Identifier: MIT
"""Chat deltas of a whole answer, put together."""

from __future__ import annotations

from collections.abc import Iterable

from localai_proto import backend_pb2 as pb
from tests.localai_core.shown import Call


def calls_of(deltas: Iterable[pb.ChatDelta]) -> list[Call]:
    """Calls by index, gaps skipped: the last name and id that say anything win, arguments are joined."""
    by_index: dict[int, Call] = {}
    for delta in deltas:
        for part in delta.tool_calls:
            known = by_index.get(part.index, Call("", "", ""))
            by_index[part.index] = Call(part.id or known.id, part.name or known.name, known.arguments + part.arguments)
    return [by_index[index] for index in sorted(by_index) if index >= 0]


def content_of(deltas: Iterable[pb.ChatDelta]) -> str:
    return "".join(delta.content for delta in deltas)


def reasoning_of(deltas: Iterable[pb.ChatDelta]) -> str:
    return "".join(delta.reasoning_content for delta in deltas)
