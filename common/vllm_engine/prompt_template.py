# SPDX-License-Identifier: MIT
"""What the model's chat template does with a short chat, with thinking switched on and off."""

from __future__ import annotations

from collections.abc import Sequence

from chatdelta import ChatRequest, InvalidRequest, Origin, PromptTemplate
from vllm_engine.bindings import Runtime

PROBE = ({"role": "user", "content": "test"},)


async def probe_template(runtime: Runtime, *, has_reasoning_parser: bool) -> PromptTemplate:
    """A model supports thinking if its template has a switch for it, or if a parser reads its reasoning."""
    thinking, silent = await _prompt(runtime, thinking=True), await _prompt(runtime, thinking=False)
    return PromptTemplate(
        rendered=runtime.tokenizer.decode(list(thinking)) if thinking else "",
        supports_thinking=thinking != silent or has_reasoning_parser,
    )


async def _prompt(runtime: Runtime, *, thinking: bool) -> Sequence[int]:
    """The tokens of the rendered chat; none where the model has no template that takes it."""
    body = {"messages": list(PROBE), "chat_template_kwargs": {"enable_thinking": thinking}}
    try:
        return (await runtime.render(ChatRequest("template", body, Origin(door="")))).prompt_token_ids
    except (InvalidRequest, ValueError):
        return ()
