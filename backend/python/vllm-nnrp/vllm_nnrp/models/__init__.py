# SPDX-License-Identifier: MIT
"""The models built on the machine: one to show (`demo`), the others to test with, and their cache.

Importing it loads neither torch nor transformers; the builders do, when there is something to build.
"""

from vllm_nnrp.models.cache import cache_root
from vllm_nnrp.models.demo import DemoModelError, build_demo_model
from vllm_nnrp.models.memorised import MemorisingFailed, build_memorised_model
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS, Conversation
from vllm_nnrp.models.pooling import build_embedding_model, build_reranking_model
from vllm_nnrp.models.vision import build_vision_model

__all__ = [
    "CONVERSATIONS",
    "Conversation",
    "DemoModelError",
    "MemorisingFailed",
    "build_demo_model",
    "build_embedding_model",
    "build_memorised_model",
    "build_reranking_model",
    "build_vision_model",
    "cache_root",
]
