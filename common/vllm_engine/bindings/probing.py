# SPDX-License-Identifier: MIT
"""Whether the installed vLLM is one we serve: its version by the metadata alone, then what a binding uses of it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

from chatdelta import BackendFailure
from vllm_engine.bindings.families import (
    FAMILIES,
    NEWEST,
    TESTED_ANCHORS,
    Family,
    Probe,
    family_name,
    install_command,
    is_newer,
)
from vllm_engine.errors import for_peer
from vllm_engine.installation import Installation

ALLOW_UNTESTED_FLAG, ALLOW_UNTESTED_VARIABLE = "--allow-untested-vllm", "VLLM_NNRP_ALLOW_UNTESTED_VLLM"
UNTESTED = "tests"  # its name among what a vLLM lacks
NAMED = 3  # of what is missing, so that what to do about it fits in the line; `vllm-nnrp doctor` shows all


class CannotImport(Exception):
    """A module of vLLM is there and cannot be imported; `str()` says why."""


def require_family(installation: Installation, *, allow_untested: bool = False) -> Family:
    """The family of the installed vLLM, without importing it; the newest for a newer vLLM, if that is allowed.

    Raises BackendFailure where there is none.
    """
    name = family_name(installation.version)
    if name in FAMILIES:
        return FAMILIES[name]
    if not is_newer(installation.version):
        raise _unsupported(installation, f"a binding for {name}", NEWEST)
    if not allow_untested:
        raise _unsupported(
            installation, f"a binding for {name}", NEWEST, f"; to try it untested: {ALLOW_UNTESTED_FLAG}"
        )
    return NEWEST


def untested_note(installation: Installation) -> str | None:
    """What there is to say of a vLLM that is served because untested ones are allowed; None for any other."""
    if not is_newer(installation.version):
        return None
    return (
        f"vLLM {installation.version} is untested: it is newer than every version that this backend is tested with "
        f"({', '.join(TESTED_ANCHORS)}) and runs with the binding of {NEWEST.name}, because {ALLOW_UNTESTED_FLAG} "
        "allows it; answers may be wrong"
    )


def require_features(installation: Installation, family: Family) -> None:
    """Raise BackendFailure where vLLM lacks something that the family's binding uses. Imports vLLM."""
    try:
        missing = missing_features(family)
    except CannotImport as exc:
        raise _refusal(installation, f"vLLM {installation.version} cannot be imported: {exc}", family) from exc
    if missing:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        raise _unsupported(installation, ", ".join(missing[:NAMED]) + more, family)


def missing_features(family: Family) -> list[str]:
    """What of the family's probes the installed vLLM lacks, by its dotted name.

    Raises CannotImport where a module of vLLM is there and cannot be imported: then something else is wrong with it.
    """
    return [lack for probe in family.probes for lack in _lacks(probe)]


def _lacks(probe: Probe) -> Iterator[str]:
    module, _, path = probe.where.partition(":")
    name = f"{module}.{path}"
    try:
        found = importlib.import_module(module)
    except Exception as exc:
        if isinstance(exc, ModuleNotFoundError) and f"{module}.".startswith(f"{exc.name}."):
            yield name
            return
        raise CannotImport(for_peer(f"{type(exc).__name__}: {exc}")) from exc
    try:
        for part in path.split("."):
            found = getattr(found, part)
    except AttributeError:
        yield name
        return
    if probe.parameters:
        taken = inspect.signature(found).parameters  # type: ignore[arg-type]  # of vLLM, which is untyped here
        yield from (f"{name}({parameter}=)" for parameter in probe.parameters if parameter not in taken)


def _unsupported(installation: Installation, missing: str, family: Family, way_out: str = "") -> BackendFailure:
    return _refusal(installation, f"vLLM {installation.version} is not supported; missing: {missing}", family, way_out)


def _refusal(installation: Installation, finding: str, family: Family, way_out: str = "") -> BackendFailure:
    command = install_command(installation.distribution, family)
    return BackendFailure(
        f"{finding}; tested: {', '.join(TESTED_ANCHORS)}; to install one: {command}{way_out}", code="unsupported_vllm"
    )
