# SPDX-License-Identifier: MIT
"""Raw text and token ids, both ways, as vLLM's renderer has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chatdelta import InvalidRequest


def begins_with_bos(text: str, tokenizer: Any) -> bool:
    """Whether the text has its BOS already: a second one, put in front by the tokenizer, changes the answer."""
    return bool(tokenizer.bos_token) and text.startswith(tokenizer.bos_token)


async def detokenize(renderer: Any, token_ids: Sequence[int]) -> str:
    """The text of the tokens, in the renderer's thread. Raises InvalidRequest naming an id that is no token's."""
    from vllm.renderers import TokenizeParams

    highest = renderer.get_tokenizer().max_token_id
    for number, token_id in enumerate(token_ids):
        if not 0 <= token_id <= highest:
            where = f"tokens[{number}]"
            raise InvalidRequest(f"{where} is {token_id}, and the model's tokens are 0 to {highest}", param=where)
    parameters = TokenizeParams(max_total_tokens=None, needs_detokenization=True)
    prompt = await renderer.tokenize_prompt_async({"prompt_token_ids": list(token_ids)}, parameters)
    return str(prompt["prompt"])
