# SPDX-License-Identifier: MIT
"""What a token and a request cost in this process, here and in vLLM's own code, on one scripted client.

Costs are CPU seconds of the whole process, so that the renderer's threads count as well.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from chatdelta import ChatRequest, Completed, GenerationRequest, Origin, PromptRequest, ResponseHead, StreamMapper
from vllm_engine.chat_request import chat_request
from vllm_engine.engine import VllmEngine
from vllm_engine.oracle.client import ScriptedClient
from vllm_engine.oracle.serving import Oracle
from vllm_engine.split import TokenSplitter

Encode = Callable[[Any], object]  # an event to its bytes
TOOL = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}
WORDS = "A line of text with nothing in it. "
# kind: (what the model says first, fields of the body)
KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "text": ("", {"tools": [TOOL], "chat_template_kwargs": {"enable_thinking": False}}),
    "reasoning": ("<think>", {"tools": [TOOL]}),
    "arguments": (
        '<tool_call>\n{"name": "lookup", "arguments": {"q": "',
        {"tools": [TOOL], "chat_template_kwargs": {"enable_thinking": False}},
    ),
}


class Costs:
    """Measures on `engine` and on vLLM's serving object; both are on `client`, which must hand out single tokens."""

    def __init__(self, client: ScriptedClient, engine: VllmEngine, oracle: Oracle, encode: Encode) -> None:
        self._client, self._engine, self._oracle = client, engine, oracle
        self._encode = encode
        self._runtime: Any = engine._runtime
        self._tokenizer = client.renderer.get_tokenizer()
        self._number = 0

    def _chat(self, fields: Mapping[str, Any]) -> ChatRequest:
        self._number += 1
        body = {"model": self._engine.info.model_names[0], "messages": [{"role": "user", "content": "Go."}], **fields}
        return ChatRequest(f"cost-{self._number}", body, Origin(door="bench"))

    async def parsing(self, kind: str, tokens: int) -> dict[str, float]:
        """Seconds a token: our parser of one choice, with the cutting of deltas, and vLLM's `parse_delta`."""
        begin, fields = KINDS[kind]
        pieces = self._pieces(begin + WORDS * tokens, tokens)
        request = self._chat(fields)
        rendered = await self._runtime.render(request)
        parser = rendered.parsers[0]
        splitter = TokenSplitter(self._tokenizer, skip_special_tokens=rendered.sampling_params.skip_special_tokens)

        def ours(text: str, token_id: int) -> None:
            for piece, piece_id in splitter.split(text, (token_id,)):
                parser.feed(piece, piece_id, finished=False)

        native, chat, prompt_ids = await self._native(request)

        def theirs(text: str, token_id: int) -> None:
            native.parse_delta(text, [token_id], chat, prompt_ids, finished=False)

        return {"ours_s": _each(ours, pieces) / tokens, "vllm_s": _each(theirs, pieces) / tokens}

    async def _native(self, request: ChatRequest) -> tuple[Any, Any, list[int]]:
        """vLLM's unified parser for a request, as its serving object makes it."""
        chat = chat_request(request)
        _, (prompt,) = await self._runtime.rendered_chat(chat)
        kwargs = chat.build_chat_params(None, "auto").chat_template_kwargs
        native = self._runtime._native(chat, kwargs)
        return native, chat, prompt["prompt_token_ids"]

    def _pieces(self, text: str, count: int) -> list[tuple[str, int]]:
        ids = self._tokenizer.encode(text, add_special_tokens=False)[:count]
        return [(self._tokenizer.decode([token_id]), token_id) for token_id in ids]

    async def request(self, *, tools: bool, repeats: int) -> dict[str, float]:
        """Seconds a request of one token, from its body to its last encoded event; validation is in both."""
        fields: dict[str, Any] = {"max_tokens": 1, "chat_template_kwargs": {"enable_thinking": False}}
        if tools:
            fields["tools"] = [TOOL]

        async def ours() -> None:
            await self._answer(self._chat(fields))

        async def theirs() -> None:
            await self._oracle.stream(self._chat(fields).body)

        return {"ours_s": await _cost(ours, repeats), "vllm_s": await _cost(theirs, repeats)}

    async def length(self, *, parsers: bool, tokens: int, repeats: int) -> float:
        """Seconds a token of answers of so many tokens, from the engine's output to the encoded event."""

        async def answer() -> None:
            if parsers:
                fields = {"max_tokens": tokens, **KINDS["text"][1]}
                await self._answer(self._chat(fields))
                return
            self._number += 1
            body = {"model": self._engine.info.model_names[0], "prompt": "Go.", "max_tokens": tokens}
            await self._answer(PromptRequest(f"cost-{self._number}", body, Origin(door="bench")))

        return await _cost(answer, repeats) / tokens

    async def _answer(self, request: GenerationRequest) -> None:
        mapper = StreamMapper(ResponseHead(request.request_id, 0, "bench"))
        async for delta in self._engine.generate(request):
            for event in mapper.feed(delta):
                self._encode(event)
        *_, terminal = mapper.complete()
        if not isinstance(terminal, Completed):
            raise RuntimeError(f"the answer ended as {terminal}")


def _each(step: Callable[[str, int], None], pieces: Sequence[tuple[str, int]]) -> float:
    begun = time.process_time()
    for text, token_id in pieces:
        step(text, token_id)
    return time.process_time() - begun


async def _cost(work: Callable[[], Awaitable[None]], repeats: int) -> float:
    begun = time.process_time()
    for _ in range(repeats):
        await work()
    return (time.process_time() - begun) / repeats
