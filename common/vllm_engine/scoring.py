# SPDX-License-Identifier: MIT
"""How likely a model finds each continuation of a prompt, from the log-probabilities vLLM gives for known tokens.

Prompt and candidate are tokenised as the one text they are; the candidate's own tokens are those beyond the common
beginning with the prompt's tokens. So a score is what the model itself gives that text, also where the candidate's
first characters join the prompt's last ones in one token.

vLLM has no log-probabilities for what it finds in its prefix cache, and so its default is not to look there. Here it
does look: a request covers the tokens behind the cached blocks, and for those before them another, shorter one is sent,
whose last block vLLM must compute. So the prompt is computed once, whatever the number of candidates, and nothing of
it again in the next call. (A caller's hint which part of the prompt stays the same would add nothing: vLLM keeps every
full block, by its content.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

from chatdelta import CandidateScore, InvalidRequest, ScoredToken, ScoreRequest, Scores, UnsupportedOperation
from vllm_engine.in_flight import InFlight
from vllm_engine.prompts import begins_with_bos

MAX_TOKENS = 4_000_000  # of one request, the prompt counted with every candidate: vLLM is given each in full
TokenIds = Sequence[int]
Generate = Callable[..., AsyncGenerator[Any, None]]  # (engine request id, token ids, sampling parameters by name)


@dataclasses.dataclass(slots=True)
class Candidate:
    """Tokens of prompt and candidate together, from `start` on the candidate's, and what is known of those.

    `logprobs` are of the tokens behind `end`: it grows from the back.
    """

    token_ids: TokenIds
    start: int
    end: int
    logprobs: list[float] = dataclasses.field(default_factory=list)

    @property
    def is_known(self) -> bool:
        return self.end < self.start

    def take(self, output: Any) -> None:
        """The log-probabilities of an output of `_submit`. Each has one token at least."""
        first = max(self.start, output.num_cached_tokens + 1)
        entries = [output.prompt_logprobs[position - self.end] for position in range(first, self.end)]
        entries.append(output.outputs[0].logprobs[0])
        self.logprobs[:0] = map(_logprob, entries, self.token_ids[first : self.end + 1])
        self.end = first - 1


async def score(llm: Any, in_flight: InFlight, request: ScoreRequest, lora_request: Any) -> Scores:
    """The scores of a request's candidates. Raises InvalidRequest naming a candidate that cannot have one."""
    if (mode := llm.model_config.logprobs_mode) != "raw_logprobs":
        raise UnsupportedOperation(f"scores need the engine's logprobs_mode raw_logprobs, and it is {mode}")
    prompt_ids, *texts = await _tokenise(llm, request)
    candidates = [Candidate(ids, common_length(prompt_ids, ids), len(ids) - 1) for ids in texts]
    for number, candidate in enumerate(candidates):
        _refuse_unscorable(candidate, f"candidates[{number}]")
    generate = partial(_generate, llm, lora_request)
    if llm.vllm_config.cache_config.enable_prefix_caching:
        await _compute_prompt(generate, in_flight, request.request_id, candidates)
    while unknown := [candidate for candidate in candidates if not candidate.is_known]:
        submits = [partial(_submit, generate, candidate) for candidate in unknown]
        for candidate, output in zip(unknown, await in_flight.gather(request.request_id, submits), strict=True):
            candidate.take(output)
    scores = tuple(_score(candidate, llm.get_tokenizer()) for candidate in candidates)
    return Scores(scores, prompt_tokens=len(prompt_ids) + sum(len(score.tokens) for score in scores))


async def _tokenise(llm: Any, request: ScoreRequest) -> list[TokenIds]:
    """The tokens of the prompt, then those of the prompt with each candidate, as a raw prompt has them."""
    renderer = llm.renderer
    parameters = dataclasses.replace(
        renderer.default_cmpl_tok_params,
        max_output_tokens=1,
        add_special_tokens=not begins_with_bos(request.prompt, renderer.get_tokenizer()),
    )
    found: list[TokenIds] = []
    for ending in ("", *request.candidates):
        prompt = await renderer.tokenize_prompt_async({"prompt": request.prompt + ending}, parameters)
        found.append(prompt["prompt_token_ids"])
        if sum(map(len, found)) > MAX_TOKENS:
            message = f"prompt and candidates come to more than {MAX_TOKENS} tokens: send fewer candidates at once"
            raise InvalidRequest(message, code="invalid_body", param="candidates")
    return found


def common_length(first: TokenIds, second: TokenIds) -> int:
    """How many tokens both begin with."""
    pairs = zip(first, second, strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def _refuse_unscorable(candidate: Candidate, name: str) -> None:
    if candidate.is_known:
        raise InvalidRequest(f"{name} has no token of its own behind the prompt", code="invalid_body", param=name)
    if candidate.start == 0:
        message = f"{name}: the prompt leaves no token in front of it, and a model's first token has no probability"
        raise InvalidRequest(message, code="invalid_body", param="prompt")


async def _compute_prompt(
    generate: Generate, in_flight: InFlight, request_id: str, candidates: Sequence[Candidate]
) -> None:
    """Put what all candidates share into the prefix cache, once.

    Then no request asks for the log-probabilities of a long prompt: they take its length times the vocabulary, memory
    that vLLM has not reckoned with.
    """
    shared = candidates[0].token_ids[: min(candidate.start for candidate in candidates)]
    await in_flight.gather(request_id, [lambda engine_id: generate(engine_id, shared)])


def _submit(generate: Generate, candidate: Candidate, engine_id: str) -> AsyncGenerator[Any, None]:
    """The tokens up to `end` as the prompt, and the one at `end` as the only one that may be generated."""
    return generate(
        engine_id,
        candidate.token_ids[: candidate.end],
        allowed_token_ids=[candidate.token_ids[candidate.end]],
        logprobs=0,
        prompt_logprobs=1 if candidate.start < candidate.end else None,
        skip_reading_prefix_cache=False,
    )


def _generate(
    llm: Any, lora_request: Any, engine_id: str, token_ids: TokenIds, **sampling: Any
) -> AsyncGenerator[Any, None]:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    parameters = SamplingParams(max_tokens=1, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY, **sampling)
    stream: AsyncGenerator[Any, None] = llm.generate(
        {"type": "token", "prompt_token_ids": list(token_ids)}, parameters, engine_id, lora_request=lora_request
    )
    return stream


def _logprob(entry: Any, token_id: int) -> float:
    if not entry or token_id not in entry:
        raise UnsupportedOperation("this engine gives no log-probabilities of prompt tokens")
    value: float = entry[token_id].logprob
    return value


def _score(candidate: Candidate, tokenizer: Any) -> CandidateScore:
    from vllm.tokenizers.detokenizer_utils import convert_ids_list_to_tokens

    texts = convert_ids_list_to_tokens(tokenizer, list(candidate.token_ids[candidate.start :]))
    return CandidateScore(tuple(map(ScoredToken, texts, candidate.logprobs)))
