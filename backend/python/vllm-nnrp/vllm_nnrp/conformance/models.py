# SPDX-License-Identifier: MIT
"""The documents of API-profile conformance, as their published JSON schemas have them: nothing more, nothing less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

PROFILE = "openai-compatible"
SCHEMA_VERSION = "openai-compatible/1"
SCHEMAS = "https://github.com/NagareWorks/nnrp-conformance/schemas"  # where their `$id`s say that they are

Status = Literal["mandatory", "optional", "experimental", "deprecated"]
Outcome = Literal["passed", "failed", "skipped"]
TerminalKind = Literal["success", "error", "cancelled"]
Json = dict[str, Any]
Value = TypeVar("Value")


def unique(values: Sequence[Value]) -> Sequence[Value]:
    if any(value in values[:position] for position, value in enumerate(values)):
        raise ValueError("every entry may appear once only")
    return values


Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Level = Annotated[int, Field(ge=1)]
Names = Annotated[tuple[Name, ...], AfterValidator(unique)]


class Document(BaseModel):
    """Strict, closed and frozen; `to_json` says what was set, and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=True)

    def to_json(self) -> Json:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


class Root(Document):
    schema_: str | None = Field(None, alias="$schema")


class _OfProfile(Root):
    profile: Literal["openai-compatible"]
    schema_version: Literal["openai-compatible/1"]


class Operation(Document):
    name: Name
    streaming: bool
    non_streaming: bool
    tool_calls: bool
    cancellation: bool | None = None


class Extension(Document):
    name: Name
    critical: bool
    description: str | None = None


class Manifest(_OfProfile):
    """What an adapter claims."""

    adapter: Name
    compatibility_levels: Annotated[tuple[Level, ...], Field(min_length=1), AfterValidator(unique)]
    operations: Annotated[tuple[Operation, ...], Field(min_length=1)]
    extensions: tuple[Extension, ...] = ()


class Suite(_OfProfile):
    """Which recipes belong together; their paths are relative to this file."""

    level: Literal[1]
    protocol_baselines: Annotated[Names, Field(min_length=1)]
    recipe_manifests: Annotated[Names, Field(min_length=1)]


class Request(Document):
    """`nnrp` holds the envelope's policy and instructions to the runner, which never enter the envelope."""

    body: Json
    nnrp: Json | None = None


class ExpectedEvent(Document):
    type: Name
    optional: bool | None = None
    min_count: Count | None = None
    fields: Json | None = None


class Expect(Document):
    events: tuple[ExpectedEvent, ...]
    terminal: TerminalKind


class Recipe(_OfProfile):
    id: Name
    operation: Name
    required_capabilities: Names = ()
    status: Status = "mandatory"
    parameters: dict[str, str] | None = None
    request: Request
    expect: Expect


class Case(Document):
    """A recipe that was selected, with its parameters filled in."""

    id: str
    operation: str
    status: Status
    required_capabilities: tuple[str, ...] | None = None
    request: Request
    expect: Expect


class Artifacts(Document):
    results_path: str
    evidence_dir: str


class Summary(Document):
    selected_cases: Count
    not_claimed_cases: Count
    informational_cases: Count


class Statuses(Document):
    mandatory_cases: Count
    optional_cases: Count
    experimental_cases: Count
    deprecated_cases: Count


class Coverage(Document):
    feature: Name
    required_capabilities: Names
    summary: Summary
    statuses: Statuses
    case_ids: Names


class Plan(_OfProfile):
    adapter: Name
    artifacts: Artifacts
    coverage_matrix: tuple[Coverage, ...]
    cases: tuple[Case, ...]


class Result(Document):
    id: str
    outcome: Outcome
    terminal: TerminalKind
    events: tuple[Json, ...] | None = None
    diagnostics: Json | None = None
    message: str | None = None


class Results(_OfProfile):
    adapter: Name
    results: tuple[Result, ...]
