# SPDX-License-Identifier: MIT
"""The memorised conversations as users of LocalAI ask for them, at a real gRPC address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from tests.localai_core.ask import Ask
from tests.localai_core.attempts import Backend
from tests.localai_core.backends import GrpcBackend
from vllm_nnrp.models.memorised_corpus import Conversation

T = TypeVar("T")


def ask_for(conversation: Conversation, **changes: Any) -> Ask:
    """The conversation at temperature 0, with tools if it has any; core always says whether to think."""
    ask = Ask(
        conversation.messages,
        tools=conversation.tools,
        temperature=0,
        metadata={"enable_thinking": str(conversation.enable_thinking).lower()},
    )
    return replace(ask, **changes)


async def show(address: str, endpoint: Callable[[Backend, Ask], T], ask: Ask) -> T:
    """What `endpoint` shows, asked in a thread of its own: core's calls block."""
    return await asyncio.to_thread(endpoint, GrpcBackend(address), ask)
