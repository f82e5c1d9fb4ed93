# SPDX-License-Identifier: MIT
"""The backend of a conformance run: `python -m vllm_nnrp.conformance.child scripted|real FLAGS…`.

It differs from `vllm-nnrp serve` in one thing: it serves the model `backend-error`, too.
"""

from __future__ import annotations

import os
import sys

from chatdelta import Engine
from vllm_engine import EngineSpec
from vllm_nnrp.conformance.faults import FaultEngine
from vllm_nnrp.main import main, open_vllm
from vllm_nnrp.settings_table import ALLOW_UNTESTED_VLLM


async def open_scripted(_spec: EngineSpec) -> Engine:
    from vllm_nnrp.conformance.scripted import scripted_engine

    return FaultEngine(scripted_engine())


async def open_real(spec: EngineSpec) -> Engine:
    return FaultEngine(await open_vllm(spec, allow_untested=ALLOW_UNTESTED_VLLM.value(None, os.environ)))


ENGINES = {"scripted": open_scripted, "real": open_real}

if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], open_engine=ENGINES[sys.argv[1]]))
