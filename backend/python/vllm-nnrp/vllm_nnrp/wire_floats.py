# SPDX-License-Identifier: MIT
"""A float32 of the wire as the decimal number somebody wrote: 0.7 arrives as 0.699999988."""

from __future__ import annotations

import struct

_FLOAT32 = struct.Struct("<f")


def float32(value: float) -> float:
    """The shortest decimal with the same float32; infinities and NaN as they are."""
    packed = _FLOAT32.pack(value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if _FLOAT32.pack(short) == packed:
            return short
    return value
