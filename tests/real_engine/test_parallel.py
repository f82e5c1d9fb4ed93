# SPDX-License-Identifier: MIT
"""Engines of two ranks on this machine's CPUs: each rank with cores of its own, and the same answers."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import pytest

from tests.real_engine.backend import real_backend
from tests.real_engine.clients import ask_grpc
from tests.real_engine.test_answers import BY_NAME, check
from tests.support.models import memorised_model_path
from vllm_engine.parallel import usable_cpus
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS

pytestmark = pytest.mark.asyncio

BINDING = "VLLM_CPU_OMP_THREADS_BIND"


@pytest.mark.parametrize("size", ["tensor_parallel_size", "data_parallel_size"])
async def test_two_ranks_answer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, size: str) -> None:
    caplog.set_level(logging.INFO, logger="vllm_engine.opening")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    cpus = usable_cpus()
    own = f"{cpus[0]}|{cpus[0]}" if len(cpus) < 2 else ""  # on one CPU only who binds by hand gets two ranks
    monkeypatch.setenv(BINDING, own)
    two_ranks: dict[str, Any] = {size: 2}
    async with real_backend(memorised_model_path(), **two_ranks) as backend:
        answers = await asyncio.gather(*(ask_grpc(backend, conversation) for conversation in CONVERSATIONS))
        for answer, conversation in zip(answers, CONVERSATIONS, strict=True):
            check(answer, conversation)
        check(await ask_grpc(backend, BY_NAME["long_answer"]), BY_NAME["long_answer"])
    (settings,) = [message for message in caplog.messages if message.startswith("start settings: ")]
    assert f"{BINDING}=" in settings or own or _a_node_for_each_rank()
    assert os.environ[BINDING] == own, "the next engine may have another number of ranks"


def _a_node_for_each_rank() -> bool:
    from vllm_engine.parallel import thread_binding

    return thread_binding(2, usable_cpus()) == ""
