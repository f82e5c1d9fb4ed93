# SPDX-License-Identifier: MIT
"""Is this JSON nested too deeply, or of too many parts? Answered before it is parsed, by no Python loop over bytes.

Only valid JSON gets an exact answer; whatever else passes here, the parser refuses (it guards its own recursion).
"""

from __future__ import annotations

_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))


def has_more_containers(text: bytes, limit: int) -> bool:
    """Whether there are more than `limit` arrays and objects."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    return _brackets(text).count(b"[") > limit


def is_nested_deeper(text: bytes, max_depth: int) -> bool:
    """Whether an array or object of `text` lies inside `max_depth` others."""
    if text.count(b"[") + text.count(b"{") <= max_depth:
        return False  # nearly every request: not that many brackets at all, in strings or out of them
    left = _brackets(text)
    too_many = b"[" * (max_depth + 1)
    for _ in range(max_depth):  # each round takes away the innermost level everywhere
        if too_many in left:
            return True
        shorter = left.replace(b"[]", b"")
        if len(shorter) == len(left):
            break
        left = shorter
    return b"[]" in left or too_many in left


def _brackets(text: bytes) -> bytes:
    """The brackets outside strings, all as one kind."""
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = unescaped.translate(_ONE_KIND, delete=_NOT_STRUCTURE)
    # Two quotes in a row are an empty string or the seam of two strings: without them the rest keeps its meaning.
    return b"".join(structure.replace(b'""', b"").split(b'"')[::2])
