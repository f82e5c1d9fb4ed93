# SPDX-License-Identifier: MIT
"""`python -m tests.parity.left_out`: what the installed vLLM is not asked of the corpus, each with the reason."""

from __future__ import annotations

import sys

from tests.parity.corpus import FAMILIES
from tests.parity.corpus.versions import left_out

if __name__ == "__main__":
    sys.stdout.write("".join(f"{name}: {reason}\n" for name, reason in left_out(FAMILIES)))
