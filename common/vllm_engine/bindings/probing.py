# SPDX-License-Identifier: MIT
"""Whether the installed vLLM is one we serve: its version by the metadata alone, then what a binding uses of it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

from chatdelta import BackendFailure
from vllm_engine.bindings.families import FAMILIES, NEWEST, TESTED_ANCHORS, Family, Probe, family_name
from vllm_engine.installation import Installation, find_installation


def require_family(installation: Installation) -> Family:
    """The family of the installed vLLM, without importing it. Raises BackendFailure where there is none."""
    name = family_name(installation.version)
    if name not in FAMILIES:
        raise _refusal(installation, f"a binding for {name}", NEWEST)
    return FAMILIES[name]


def unsupported_vllm() -> str | None:
    """Why the installed vLLM is not served at all, by its metadata; None where it may be, or where there is none."""
    try:
        installation = find_installation()
    except BackendFailure:
        return None  # a load says so
    try:
        require_family(installation)
    except BackendFailure as exc:
        return str(exc)
    return None


def require_features(installation: Installation, family: Family) -> None:
    """Raise BackendFailure where vLLM lacks something that the family's binding uses. Imports vLLM."""
    missing = missing_features(family)
    if missing:
        raise _refusal(installation, ", ".join(missing), family)


def missing_features(family: Family) -> list[str]:
    """What of the family's probes the installed vLLM lacks, by its dotted name."""
    return [lack for probe in family.probes for lack in _lacks(probe)]


def _lacks(probe: Probe) -> Iterator[str]:
    module, _, path = probe.where.partition(":")
    name = f"{module}.{path}"
    try:
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        yield name
        return
    if probe.parameters:
        taken = inspect.signature(found).parameters  # type: ignore[arg-type]  # of vLLM, which is untyped here
        yield from (f"{name}({parameter}=)" for parameter in probe.parameters if parameter not in taken)


def _refusal(installation: Installation, missing: str, family: Family) -> BackendFailure:
    wanted = " ".join(f"'{each}'" for each in (f"{installation.distribution}=={family.anchor}", *family.packages))
    return BackendFailure(
        f"vLLM {installation.version} is not supported; missing: {missing}; "
        f"tested: {', '.join(TESTED_ANCHORS)}; to install one: pip install {wanted}",
        code="unsupported_vllm",
    )
