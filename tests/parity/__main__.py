# SPDX-License-Identifier: MIT
"""`make parity`: the whole corpus in every mode. Exit status 1 if this backend missed anything, or could not be run."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.parity.corpus import FAMILIES
from tests.parity.corpus.versions import left_out
from tests.parity.entries import Family
from tests.parity.report import listed, parity_page
from tests.parity.suite import Tally, score_family
from vllm_engine.bindings.families import NEWEST, family_name
from vllm_engine.environment import start_environment
from vllm_engine.installation import find_installation

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parity.md"
MODES = ("1", "2-5", "all")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("families", nargs="*", help="only these families (docs/parity.md is then left alone)")
    parser.add_argument("--quick", action="store_true", help="without the property test over all splits")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.families) - {family.name for family in FAMILIES}:
        parser.error(f"no such family: {', '.join(sorted(unknown))}")
    installation = find_installation()
    os.environ.update(start_environment(installation, os.environ, eager=True))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    logging.disable(logging.ERROR)  # vLLM logs every output that its parsers cannot read
    chosen = [family for family in FAMILIES if not arguments.families or family.name in arguments.families]
    tally, not_run = asyncio.run(_score(chosen, every_split=not arguments.quick))
    if not (arguments.families or not_run) and family_name(installation.version) == NEWEST.name:
        names = [family.name for family in chosen]
        PAGE.write_text(parity_page(tally, names, installation.version), encoding="utf-8")
    sys.stdout.write("".join(f"left out: {name}: {reason}\n" for name, reason in left_out(tuple(chosen))))
    sys.stdout.write("".join(f"not run: {family}\n" for family in not_run) + listed(tally.ours))
    sys.stdout.write(
        f"{tally.entries} entries, {tally.outcomes} outcomes, {tally.splits} splits: "
        f"{len(tally.ours)} misses of ours, {len(tally.oracle)} of vLLM {installation.version}\n"
    )
    return 1 if tally.ours or not_run else 0


async def _score(families: Sequence[Family], *, every_split: bool) -> tuple[Tally, list[str]]:
    tally, not_run = Tally(), []
    with tempfile.TemporaryDirectory(prefix="parity-") as root:
        for family in families:
            if reason := family.missing():
                not_run.append(f"{family.name}: {reason}")
                continue
            start = time.monotonic()
            await score_family(family, Path(root), tally, every_split=every_split, modes=MODES)
            sys.stdout.write(f"{family.name}: {time.monotonic() - start:.1f} s\n")
            sys.stdout.flush()
    return tally, not_run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
