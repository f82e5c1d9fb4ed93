# SPDX-License-Identifier: MIT
"""What a run leaves: the raw records, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

RAW_FILE = "raw.json"


class Record(msgspec.Struct, frozen=True):
    """One measurement of one case in one round. Names of `values` carry their units."""

    scenario: str
    case: str
    round: int
    values: dict[str, float]
    samples: dict[str, list[float]] = {}  # thinned: at most figures.KEPT_SAMPLES of each


class Results(msgspec.Struct):
    """One run. `notes` say what could not be measured."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    records: list[Record] = []
    notes: list[str] = []
    failures: list[str] = []  # measurements that came to nothing

    def of(self, scenario: str) -> list[Record]:
        return [record for record in self.records if record.scenario == scenario]

    def values(self, scenario: str, case: str, name: str) -> list[float]:
        """Of each round, in order; empty where the case was not run."""
        return [record.values[name] for record in self.of(scenario) if record.case == case and name in record.values]

    def paired(self, scenario: str, one: tuple[str, str], other: tuple[str, str]) -> tuple[list[float], list[float]]:
        """Two (case, value) of the rounds that have both."""
        found = [
            {record.round: record.values[name] for record in self.of(scenario) if record.case == case}
            for case, name in (one, other)
        ]
        rounds = sorted(found[0].keys() & found[1].keys())
        return [found[0][number] for number in rounds], [found[1][number] for number in rounds]

    def cases(self, scenario: str) -> list[str]:
        return list(dict.fromkeys(record.case for record in self.of(scenario)))

    def scenarios(self) -> list[str]:
        return list(dict.fromkeys(record.scenario for record in self.records))

    def save(self, folder: Path) -> None:
        text = msgspec.json.format(msgspec.json.encode(self), indent=0 if len(self.records) > 1 else 2)
        (folder / RAW_FILE).write_bytes(text + b"\n")

    @classmethod
    def load(cls, folder: Path) -> Results:
        return msgspec.json.decode((folder / RAW_FILE).read_bytes(), type=cls)


def rounded(values: Mapping[str, float], digits: int = 9) -> dict[str, float]:
    """Nanoseconds are as fine as anything here; longer numbers only fill the file."""
    return {name: round(value, digits) for name, value in values.items()}
