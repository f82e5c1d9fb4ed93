# SPDX-License-Identifier: MIT
"""An observation sink that keeps what it gets."""

from __future__ import annotations

from chatdelta import Observation


class Records:
    """`all` holds every observation, in order."""

    def __init__(self) -> None:
        self.all: list[Observation] = []

    def record(self, observation: Observation) -> None:
        self.all.append(observation)
