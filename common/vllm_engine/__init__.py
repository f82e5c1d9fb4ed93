# SPDX-License-Identifier: MIT
"""The only code that imports vLLM: engine lifetime, bindings, rendering, native parsers, sampling, errors.

Importing this package imports none of it: vLLM and torch are loaded in a worker thread by `open_engine()`.
"""

from vllm_engine.spec import Adapter, EngineSpec
from vllm_engine.unservable import refuse_unservable

__all__ = ["Adapter", "EngineSpec", "refuse_unservable"]
