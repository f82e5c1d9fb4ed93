# SPDX-License-Identifier: MIT
"""What a run leaves behind: the results in the published form, and for each case the frames, one JSON object a line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from vllm_nnrp.conformance.models import PROFILE, SCHEMA_VERSION, SCHEMAS, Json, Plan, Results
from vllm_nnrp.conformance.observed import Seen
from vllm_nnrp.conformance.recipes import ConformanceError
from vllm_nnrp.conformance.verdict import Verdict

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def results_of(plan: Plan, verdicts: Sequence[Verdict]) -> Results:
    return Results.model_validate(
        {
            "$schema": f"{SCHEMAS}/api-profile-case-results.schema.json",
            "profile": PROFILE,
            "schema_version": SCHEMA_VERSION,
            "adapter": plan.adapter,
            "results": tuple(verdict.result for verdict in verdicts),
        }
    )


def evidence_line(frame: Seen) -> Json:
    """A frame in the form of the published wire results: direction, frame, payload, timestamp_us."""
    event = {} if frame.event is None else {"event": frame.event}
    return {
        "direction": "sent" if frame.sent else "received",
        "frame": frame.frame,
        "payload": {**frame.detail, **event},
        "timestamp_us": frame.at_us,
    }


def write_evidence(folder: Path, verdict: Verdict) -> Path:
    """`<case id>.jsonl` in `folder`. Raises ConformanceError if it cannot be written."""
    file = folder / f"{_UNSAFE.sub('_', verdict.case.id)}.jsonl"
    lines = [json.dumps(evidence_line(frame), ensure_ascii=False) for frame in verdict.observed.frames]
    write_text(file, "".join(f"{line}\n" for line in lines))
    return file


def write_json(file: Path, document: Json) -> None:
    """Raises ConformanceError."""
    write_text(file, as_text(document))


def as_text(document: Json) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write_text(file: Path, text: str) -> None:
    """Raises ConformanceError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise ConformanceError(f"{file} cannot be written: {exc.strerror or exc}") from exc


def write_atomically(file: Path, document: Json) -> None:
    """The whole file or none. Raises ConformanceError."""
    partial = file.with_name(f".{file.name}.partial")
    write_json(partial, document)
    partial.replace(file)
