# SPDX-License-Identifier: MIT
"""Entry point of the backend, started by LocalAI (through run.sh) or by hand.

It must import nothing of the project at its top: vLLM's spawned child processes import this file again, and a Python
that lacks the project shall say so in words.
"""

import os
import sys

PARENT_PID = os.getppid()  # before the imports, which take a while: so its end meanwhile is noticed


def run() -> int:
    try:
        from vllm_nnrp.main import main
    except ImportError as exc:
        print(
            f"backend.py: vllm-nnrp is not installed for {sys.executable} ({exc}). "
            "In the repository run `make install`, elsewhere install.sh in this folder; then start it by run.sh.",
            file=sys.stderr,
        )
        return 1
    return main(sys.argv[1:], parent_pid=PARENT_PID)


if __name__ == "__main__":
    sys.exit(run())
