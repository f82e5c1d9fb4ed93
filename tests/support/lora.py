# SPDX-License-Identifier: MIT
"""A LoRA adapter for the memorised model, trained here in seconds, that changes one of its answers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.models import memorised_model_path
from tests.support.process import REPOSITORY
from vllm_nnrp.models.building import one_thread, quiet_transformers
from vllm_nnrp.models.cache import cached_folder, source_key
from vllm_nnrp.models.memorised import encode, memorised_key, train
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS

if TYPE_CHECKING:
    from torch import Tensor, nn

RANK = 4
MODULES = ("o_proj", "down_proj")
HELLO = CONVERSATIONS[0]
ADAPTED = replace(HELLO, content="Ahoy! The adapter says hello.", reasoning="Adapted.")


@cache
def hello_adapter() -> Path:
    """The adapter's folder, in PEFT's format: with it the model answers the conversation "hello" with ADAPTED.

    Built by a child process, so that a test process neither keeps torch nor has its threads and seeds touched.
    """
    code = "from tests.support.lora import build_hello_adapter; print(build_hello_adapter())"
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=REPOSITORY)
    return Path(run.stdout.strip().splitlines()[-1])


def build_hello_adapter() -> Path:
    key = f"{memorised_key()}-{source_key(__name__)}"
    return cached_folder("memorised-lora", key, lambda folder: _build(folder, memorised_model_path()))


def _build(folder: Path, base: Path) -> None:
    with quiet_transformers(), one_thread():
        import torch
        from safetensors.torch import save_file
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(base).float()
        tokenizer = AutoTokenizer.from_pretrained(base)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            deltas = _add_deltas(model.requires_grad_(False))
        train(model, [encode(tokenizer, ADAPTED)], lambda _what, _share: None)
        save_file(
            {
                f"base_model.model.{name}.lora_{half}.weight": getattr(delta, half).detach().contiguous()
                for name, delta in deltas.items()
                for half in "AB"
            },
            folder / "adapter_model.safetensors",
        )
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": list(MODULES),
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


def _add_deltas(model: Any) -> dict[str, Any]:
    """Put `W + B A` in the place of each weight W of MODULES; by module name."""
    import torch
    from torch.nn.utils import parametrize

    class Delta(torch.nn.Module):  # type: ignore[misc]  # torch is not followed here
        def __init__(self, weight: Tensor) -> None:
            super().__init__()
            rows, columns = weight.shape
            self.A = torch.nn.Parameter(torch.randn(RANK, columns) / columns**0.5)
            self.B = torch.nn.Parameter(torch.zeros(rows, RANK))

        def forward(self, weight: Tensor) -> Tensor:
            return weight + self.B @ self.A

    modules: dict[str, nn.Module] = {name: module for name, module in model.named_modules() if name.endswith(MODULES)}
    deltas = {name: Delta(module.weight) for name, module in modules.items()}
    for name, module in modules.items():
        parametrize.register_parametrization(module, "weight", deltas[name])
    return deltas
