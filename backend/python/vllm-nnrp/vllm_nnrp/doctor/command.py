# SPDX-License-Identifier: MIT
"""The command: every check, then a table or JSON. The exit code says whether a backend could serve here."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from vllm_nnrp.doctor.door_checks import check_packages, check_settings
from vllm_nnrp.doctor.findings import Finding, as_json, is_usable, note, print_table
from vllm_nnrp.doctor.host_checks import check_host, check_memory, check_processors, check_python
from vllm_nnrp.doctor.vllm_checks import check_companions, check_inside, find_vllm
from vllm_nnrp.settings_table import ALLOW_UNTESTED_VLLM

NOT_USABLE = 1


def main(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """0: usable, 1: not. Raises SystemExit for `--help`."""
    parser = argparse.ArgumentParser(
        prog="vllm-nnrp doctor",
        description="Look for what would keep a backend from serving on this machine, with these settings.",
        epilog="All other arguments are the backend's: those it would be started with.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    ALLOW_UNTESTED_VLLM.add_to(parser)
    args, arguments = parser.parse_known_args(argv)
    environ = os.environ if environ is None else environ
    try:
        allow_untested = ALLOW_UNTESTED_VLLM.value(args.allow_untested_vllm, environ)
    except ValueError:
        allow_untested = False  # a problem of the settings, found among them
    findings = list(examine(arguments, environ, allow_untested=allow_untested))
    if args.json:
        json.dump(as_json(findings), sys.stdout, indent=2)
        print()
    else:
        print_table(findings, Console())
    return 0 if is_usable(findings) else NOT_USABLE


def examine(arguments: Sequence[str], environ: Mapping[str, str], *, allow_untested: bool) -> Iterator[Finding]:
    """What all checks find. vLLM is imported, in a process of its own, only where nothing forbids that."""
    yield from check_python()
    yield from check_processors()
    installation, family, findings = find_vllm(allow_untested=allow_untested)
    if installation is not None:
        host = list(check_host(installation))
        yield from host
        yield from check_memory(installation, environ)
        if family is not None:
            findings += check_companions(installation, family)
        yield from findings
        if family is not None and is_usable([*host, *findings]):
            yield from check_inside(installation, family, allow_untested=allow_untested)
        else:
            yield note("parsers", "vLLM was not imported, because of the problems above", "solve them first")
    else:
        yield from findings
    yield from check_packages()
    yield from check_settings(arguments, environ)
