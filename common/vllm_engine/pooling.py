# SPDX-License-Identifier: MIT
"""Embeddings and relevance, by the pre- and post-processing of vLLM's own /v1/embeddings, /pooling and /rerank.

vLLM's processors know how a model takes a pair of texts (score template, separator, token types), what a bi-encoder or
a late-interaction model makes of two embeddings, and how a long text is pooled in chunks; none of that is done here.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any

from vllm.entrypoints.chat_utils import ChatTemplateConfig
from vllm.entrypoints.pooling.embed.protocol import EmbeddingCompletionRequest
from vllm.entrypoints.pooling.factories import init_pooling_io_processors
from vllm.entrypoints.pooling.pooling.protocol import PoolingCompletionRequest
from vllm.entrypoints.pooling.scoring.protocol import RerankRequest as VllmRerankRequest
from vllm.entrypoints.pooling.typing import PoolingServeContext
from vllm.outputs import ScoringRequestOutput

from chatdelta import Embedding, EmbeddingLayout, EmbeddingRequest, InvalidRequest, Relevance, RerankRequest, Task
from vllm_engine.in_flight import InFlight

SCORERS = ("cross-encoder", "bi-encoder", "late-interaction")


class Pooling:
    """What a pooling model is asked for. For a model that generates it has no task."""

    def __init__(self, llm: Any, in_flight: InFlight, supported_tasks: Sequence[str], lora_request: Any) -> None:
        self._llm = llm
        self._lora_request = lora_request
        self._in_flight = in_flight
        processors = init_pooling_io_processors(supported_tasks, llm.vllm_config, llm.renderer, ChatTemplateConfig())
        self._embed = processors.get("embed")
        self._token_embed = processors.get("token_embed")
        self._scorer = next((processors[name] for name in SCORERS if name in processors), None)

    @property
    def tasks(self) -> frozenset[Task]:
        embeds, ranks = self._embed or self._token_embed, self._scorer
        return frozenset(task for task, has in ((Task.EMBED, embeds), (Task.RERANK, ranks)) if has)

    async def embed(self, request: EmbeddingRequest) -> Embedding:
        given = request.input if isinstance(request.input, str) else list(request.input)
        if self._embed is not None:
            layout, processor = EmbeddingLayout.FINAL, self._embed
            body = EmbeddingCompletionRequest(input=given)
        else:
            layout, processor = EmbeddingLayout.PER_TOKEN, self._token_embed
            # As the model makes them: whoever pools them normalises the result, not its parts.
            body = PoolingCompletionRequest(input=given, task="token_embed", use_activation=False)
        (output,), prompt_tokens = await self._run(processor, body, request.request_id)
        vectors = output.outputs.data.float()
        return Embedding(array("f", vectors.numpy().tobytes()), vectors.shape[-1], layout, prompt_tokens)

    async def rerank(self, request: RerankRequest) -> Relevance:
        self._refuse_endless("query", request.query)
        for number, document in enumerate(request.documents):
            self._refuse_endless(f"documents[{number}]", document)
        body = VllmRerankRequest(query=request.query, documents=list(request.documents))
        outputs, prompt_tokens = await self._run(self._scorer, body, request.request_id)
        scores = tuple(ScoringRequestOutput.from_base(output).outputs.score for output in outputs)
        return Relevance(scores, prompt_tokens)

    def _refuse_endless(self, name: str, text: str) -> None:
        """For a text too long in characters alone, before the query is tokenised once more with each document."""
        llm = self._llm
        limit = llm.model_config.max_model_len * llm.get_tokenizer().max_chars_per_token
        if len(text) > limit:
            message = f"{name} has {len(text)} characters, more than {limit}, what the model's context can hold at most"
            raise InvalidRequest(message, code="context_length_exceeded", param=name)

    async def _run(self, processor: Any, body: Any, request_id: str) -> tuple[list[Any], int]:
        """What the processor makes of the engine's outputs, and how many tokens the engine was given."""
        context = PoolingServeContext(
            request=body,
            model_name="",
            request_id=request_id,
            pooling_params=processor.create_pooling_params(body),
        )
        await self._in_thread(processor.pre_process_online, context)
        inputs, params = context.engine_inputs, context.pooling_params
        each = params if isinstance(params, list) else [params] * len(inputs)
        encode = partial(self._llm.encode, lora_request=self._lora_request)
        submits = [partial(encode, prompt, one) for prompt, one in zip(inputs, each, strict=True)]
        outputs = context.final_res_batch = await self._in_flight.gather(request_id, submits)
        prompt_tokens = sum(len(output.prompt_token_ids) for output in outputs)
        await self._in_thread(processor.post_process_online, context)
        return context.final_res_batch, prompt_tokens

    async def _in_thread(self, process: Any, context: Any) -> None:
        """In the renderer's own thread, as vLLM's server does: a fast tokenizer is for one thread at a time."""
        await asyncio.get_running_loop().run_in_executor(self._llm.renderer._executor, process, context)
