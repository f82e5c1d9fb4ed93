# SPDX-License-Identifier: MIT
"""How long the load lasts, and its seed."""

from __future__ import annotations

import os

SEED = 20_260
ENGINES = 2  # the time is halved between the scripted engine and the real one
SHORT_S = 60.0


def load_seconds(*, is_soak: bool) -> float:
    """For one of the two engines. `make soak SOAK_SECONDS=N` sets the whole of the long form."""
    whole_s = float(os.environ["SOAK_SECONDS"]) if is_soak else SHORT_S
    return whole_s / ENGINES
