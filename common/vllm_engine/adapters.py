# SPDX-License-Identifier: MIT
"""LoRA adapters of a loaded model: loaded once before the first request, then chosen by the model a request names.

vLLM applies one adapter to a request, in full. It loads an adapter with the first request that has it, and one that
cannot be loaded there ends the engine: so each is loaded at the start, where failing harms nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from chatdelta import InvalidRequest
from vllm_engine.errors import for_peer
from vllm_engine.spec import EngineSpec
from vllm_engine.unservable import adapter_rank

FAILURE_PREFIX = "Call to add_lora method failed: "  # vLLM's, before the reason


def adapter_args(spec: EngineSpec) -> Mapping[str, Any]:
    """The engine arguments the adapters need: room for all of them in one batch, and for the largest rank."""
    if not spec.adapters:
        return {}
    from vllm.config.lora import MaxLoRARanks

    rank = max(adapter_rank(adapter) for adapter in spec.adapters)
    room = min((allowed for allowed in get_args(MaxLoRARanks) if allowed >= rank), default=rank)  # else vLLM refuses it
    return {"enable_lora": True, "max_loras": len(spec.adapters), "max_lora_rank": room}


class Adapters:
    """vLLM's request objects for the adapters of `spec`."""

    def __init__(self, spec: EngineSpec) -> None:
        from vllm.lora.request import LoRARequest

        requests = {
            adapter: LoRARequest(adapter.name, number, adapter.path)
            for number, adapter in enumerate(spec.adapters, start=1)
        }
        self._requests = tuple(requests.values())
        self._default = self._requests[0] if requests else None
        self._by_name: dict[str | None, Any] = {
            name: requests[each] if each else None for name, each in spec.adapters_by_name().items()
        }

    async def load(self, llm: Any) -> None:
        """Load them all into the engine. Raises InvalidRequest for one it does not take; the engine lives on."""
        for request in self._requests:
            try:
                await llm.add_lora(request)
            except Exception as exc:  # a bare Exception, with the text of what happened in vLLM's process
                if llm.errored:
                    raise
                reason = for_peer(str(exc).removeprefix(FAILURE_PREFIX))
                raise InvalidRequest(f"LoRA adapter {request.lora_name}: {reason}", param="LoraAdapter") from exc

    def of(self, model: str | None = None) -> Any:
        """The LoRARequest for a request that names `model` (None: the default), or None for the model as it is."""
        return self._by_name.get(model, self._default)
