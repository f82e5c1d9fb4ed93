# SPDX-License-Identifier: MIT
"""Seeds on a CPU, in the engine's process.

A prompt that is longer than a step has room for is read in parts, and after each part but the last vLLM throws the
sampled token away and moves the request's random generator back. torch can do that on a GPU only: on a CPU the whole
engine dies of it (vLLM 0.26), so of any long prompt with a seed, and LocalAI sends a seed with every request. A request
that is still reading its prompt has drawn nothing that counts, so here its generator goes back to its seed.
"""

from __future__ import annotations

from typing import Any


def let_generators_rewind() -> None:
    """Make `torch.Generator` one that vLLM can move back; for a process that runs an engine on a CPU."""
    import torch

    base: Any = torch.Generator

    class Generator(base):  # type: ignore[misc]  # torch is untyped here
        def get_offset(self) -> int:
            return 0

        def set_offset(self, _offset: int) -> None:
            self.manual_seed(self.initial_seed())

    torch.Generator = Generator
