# SPDX-License-Identifier: MIT
"""Grammars that an answer is held to: whose field a bad one came from, one backend for all, an end to white space.

JSON allows any white space between its parts, and so do vLLM's grammars. After a number a small model may then write
line breaks until its tokens are spent. xgrammar can bound a run of white space, but vLLM has no setting for that (its
`disable_any_whitespace` takes all of it away, and the fallback to the backend for rarer schemas with it). A structural
tag says it in each request, so a schema becomes one here.
"""

from __future__ import annotations

import json
from typing import Any

from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.utils.mistral import is_mistral_tokenizer

from chatdelta import InvalidRequest
from vllm_engine.errors import naming

MAX_WHITE = 20  # characters in a row: a line break and indentation four levels deep
ANY_OBJECT = {"type": "object"}  # what vLLM makes of json_object
BACKEND = "xgrammar"  # vLLM's first choice
OTHER_BACKEND = "needs a grammar backend that the model was not loaded with (structured_outputs_config)"


def constraint_field(chat: Any, asked: StructuredOutputsParams | None) -> str:
    """The field a rendered chat request has its grammar from; `asked` is what was in it before it was rendered."""
    if chat.structured_outputs is not asked:
        return "tools"  # a forced or strict call
    return "structured_outputs" if chat.response_format is None else "response_format"


def check_constraint(params: SamplingParams, vllm_config: Any, tokenizer: Any, *, field: str) -> None:
    """vLLM's own check of a request, done before the engine gets it. Raises InvalidRequest with the name of `field`."""
    if params.structured_outputs is None:
        return
    try:
        params.verify(
            vllm_config.model_config, vllm_config.speculative_config, vllm_config.structured_outputs_config, tokenizer
        )
    except Exception as exc:
        if getattr(exc, "parameter", None) is not None:
            raise  # of another field, which vLLM names
        # Several libraries look at a grammar, and each has exceptions of its own.
        if isinstance(exc, json.JSONDecodeError):
            raise InvalidRequest(naming(field, "is not valid JSON"), code="invalid_body", param=field) from exc
        finding = str(exc.args[0]) if isinstance(exc, ValueError) and exc.args else "no grammar can be made of it"
        raise InvalidRequest(naming(field, finding), code="invalid_body", param=field) from exc
    # vLLM chooses a backend by request, but its engine uses the first request's for all that follow: after one schema
    # with a rare keyword no other constraint could be compiled any more. So there is one choice for all.
    # (The grammar of Mistral's own tools is for guidance alone, so such a model is left to vLLM's choice.)
    given = params.structured_outputs
    if given._backend_was_auto and given._backend != BACKEND and not is_mistral_tokenizer(tokenizer):
        raise InvalidRequest(naming(field, OTHER_BACKEND), code="invalid_body", param=field)


def bound_white_space(params: SamplingParams, vllm_config: Any) -> None:
    """Let no run of white space between the parts of JSON be longer than MAX_WHITE; for a checked request."""
    given = params.structured_outputs
    if given is None or given._backend != BACKEND:
        return
    if given.structural_tag is not None:
        tag = json.loads(given.structural_tag)
        _bound(tag)
    elif (schema := _schema(given)) is not None and not vllm_config.structured_outputs_config.disable_any_whitespace:
        tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
        _bound(tag)
    else:
        return
    params.structured_outputs = StructuredOutputsParams(structural_tag=json.dumps(tag))


def _schema(given: StructuredOutputsParams) -> Any:
    if given.json is not None:
        return json.loads(given.json) if isinstance(given.json, str) else given.json
    return ANY_OBJECT if given.json_object else None


def _bound(node: Any) -> None:
    """Put the bound into every schema below `node` that has none."""
    if isinstance(node, list):
        for each in node:
            _bound(each)
    elif isinstance(node, dict) and node.get("type") == "json_schema":
        if node.get("max_whitespace_cnt") is None:
            node["max_whitespace_cnt"] = MAX_WHITE
    elif isinstance(node, dict):
        for each in node.values():
            _bound(each)
