# SPDX-License-Identifier: MIT
"""`python -m vllm_nnrp` is `vllm-nnrp`."""

import sys

from vllm_nnrp.cli import main

if __name__ == "__main__":  # vLLM's spawned child processes import this file again
    sys.exit(main())
