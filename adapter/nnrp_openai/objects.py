# SPDX-License-Identifier: MIT
"""What a session has said about its objects. Nothing of them is stored here: only that they were declared."""

from __future__ import annotations

from typing import Any

from nnrp.core import ErrorCode, MessageType


class ControlRefused(Exception):
    """A control frame that cannot be obeyed; `str()` and `code` are for the peer."""

    def __init__(self, text: str, code: ErrorCode = ErrorCode.INVALID_STATE) -> None:
        super().__init__(text)
        self.code = code


class ObjectTable:
    """The declared objects of one session, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._declared: set[int] = set()

    def __len__(self) -> int:
        return len(self._declared)

    def apply(self, message_type: MessageType, metadata: Any) -> None:
        """An OBJECT_* frame. Raises ControlRefused for what was never declared, and at the limit."""
        object_id: int = metadata.object_id
        if message_type is MessageType.OBJECT_DECLARE:
            if object_id not in self._declared and len(self._declared) >= self._limit:
                raise ControlRefused(f"at most {self._limit} objects per session", ErrorCode.LIMIT_EXCEEDED)
            self._declared.add(object_id)
            return
        if object_id not in self._declared:
            raise ControlRefused("the object is not declared in this session")
        if message_type is MessageType.OBJECT_RELEASE:
            self._declared.discard(object_id)
