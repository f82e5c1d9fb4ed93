# SPDX-License-Identifier: MIT
"""The record of a smoke run: what answered, on what, of which source."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict


class SmokeStep(BaseModel):
    """One exchange. `detail`: what was wrong, empty if it is right."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    door: Literal["grpc", "nnrp"]
    name: str
    seconds: float
    detail: str = ""


class SmokeRecord(BaseModel):
    """`device` is the accelerator's own name, or the processor's; `source` is source_hash()."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal["vllm-nnrp-smoke/1"] = "vllm-nnrp-smoke/1"
    kind: Literal["cpu", "gpu"]
    vllm: str
    distribution: str
    binding: str
    packages: dict[str, str]
    python: str
    device: str
    source: str
    taken_at: datetime
    seconds: float
    steps: list[SmokeStep]

    @property
    def passed(self) -> bool:
        return bool(self.steps) and not any(step.detail for step in self.steps)

    @property
    def file_name(self) -> str:
        return f"{self.kind}-{self.vllm}.json"


def read_record(file: Path) -> SmokeRecord:
    """Raises OSError, and ValueError for what is no record."""
    return SmokeRecord.model_validate_json(file.read_bytes())


def write_record(record: SmokeRecord, folder: Path) -> Path:
    """The record's file in `folder`, named after its kind and vLLM's version."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / record.file_name
    file.write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return file
