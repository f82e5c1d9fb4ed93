# SPDX-License-Identifier: MIT
"""An engine of somebody else's process, as ours to use and not to stop: `vllm serve` and its EngineClient."""

from __future__ import annotations

from typing import Any

from chatdelta import Engine
from vllm_engine.adapters import Adapters
from vllm_engine.bindings import select_binding
from vllm_engine.engine import VllmEngine
from vllm_engine.installation import find_installation
from vllm_engine.opening import engine_info
from vllm_engine.spec import EngineSpec


class BorrowedEngine(VllmEngine):
    """Its owner stops it."""

    async def stop(self) -> None:
        """From now on nothing is served through this; the engine runs on."""
        self._stopped = True


async def borrow_engine(client: Any, renderer: Any, spec: EngineSpec, *, allow_untested: bool = False) -> Engine:
    """`client` is the server's EngineClient, `renderer` its OnlineRenderer: its templates and parsers are used.

    A vLLM newer than is tested is used if `allow_untested`. Raises BackendFailure for one that we have no binding for,
    InvalidRequest for a model that serves none of our tasks.
    """
    installation = find_installation()
    binding = select_binding(installation, allow_untested=allow_untested)
    runtime = binding.borrow(client, renderer, spec)
    info = engine_info(runtime, spec, installation, binding.family)
    return BorrowedEngine(runtime, info, await client.get_supported_tasks(), adapters=Adapters(spec))
