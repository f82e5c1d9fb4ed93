# SPDX-License-Identifier: MIT
"""JSON text inside a wire field: bounded in size and depth, and an error that names the field."""

from __future__ import annotations

from typing import Any

import msgspec

from chatdelta import InvalidRequest

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 128


def parse_json(text: str, field: str) -> Any:
    """The value of `text`. Raises InvalidRequest naming `field`; never repeats the text."""
    if len(text) > MAX_BYTES:
        raise InvalidRequest(f"{field} is larger than {MAX_BYTES} bytes", code="invalid_body", param=field)
    try:
        value = msgspec.json.decode(text)
    except RecursionError as exc:
        raise _too_deep(field) from exc
    except (msgspec.DecodeError, ValueError) as exc:
        raise InvalidRequest(f"{field} is not valid JSON", code="invalid_body", param=field) from exc
    _check_depth(value, field)
    return value


def parse_json_object(text: str, field: str) -> dict[str, Any]:
    """The object `text` is. Raises InvalidRequest naming `field`."""
    value = parse_json(text, field)
    if not isinstance(value, dict):
        raise InvalidRequest(f"{field} must be a JSON object", code="invalid_body", param=field)
    return value


def _check_depth(value: Any, field: str) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise _too_deep(field)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [child for child in value.values() if isinstance(child, (dict, list))]
    if isinstance(value, list):
        return [child for child in value if isinstance(child, (dict, list))]
    return []


def _too_deep(field: str) -> InvalidRequest:
    return InvalidRequest(f"{field} is nested deeper than {MAX_DEPTH} levels", code="invalid_body", param=field)
