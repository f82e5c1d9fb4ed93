# SPDX-License-Identifier: MIT
"""Observations written by hand, for the tables of rules."""

from __future__ import annotations

import json
from typing import Any

from tests.vllm_nnrp_conformance.documents import CASE, Json
from vllm_nnrp.conformance.event_rules import Asked
from vllm_nnrp.conformance.models import Case
from vllm_nnrp.conformance.observed import PARTIAL, PUSH, Observed, Seen

USAGE = {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
BODY_USAGE = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
EXTENSIONS = frozenset({"response.reasoning_text.delta", "response.logprobs.delta", "vllm.diagnostics", "choice_index"})


def event(kind: str, **fields: Any) -> Json:
    return {"type": f"response.{kind}", **fields}


def text(delta: str, index: int = 0) -> Json:
    return event("output_text.delta", index=index, delta=delta)


def reasoning(delta: str) -> Json:
    return event("reasoning_text.delta", index=0, delta=delta)


def usage(**changed: int) -> Json:
    return event("usage", usage=USAGE | changed)


def call(step: str, call_id: str = "c", *, index: int = 0, **fields: Any) -> Json:
    """An event of one tool call; `started` and `completed` have a name."""
    name = {"name": "f"} if step in ("started", "completed") else {}
    return event(f"tool_call.{step}", index=index, item_id=f"item-{call_id}", call_id=call_id, **{**name, **fields})


def choice(content: str | None = "", index: int = 0, **changed: Any) -> Json:
    """`message` in `changed` is merged into the message."""
    message = {"role": "assistant", "content": content, **changed.pop("message", {})}
    return {"index": index, "message": message, "finish_reason": "stop", **changed}


def completed(*choices: Json, **body: Any) -> Json:
    whole = {"object": "chat.completion", "model": "m", "choices": list(choices or (choice(),)), "usage": BODY_USAGE}
    return event("completed", body=whole | body)


def called(arguments: str, call_id: str = "c") -> Json:
    """A choice with one call of `f`."""
    tool_call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}
    return choice(None, finish_reason="tool_calls", message={"tool_calls": [tool_call]})


def seen(*events: Json, problems: tuple[str, ...] = ()) -> Observed:
    """All but the last as partial results, the last as the result."""
    *partials, last = events
    frames = [*(Seen(PARTIAL, 0, each) for each in partials), Seen(PUSH, 0, last)]
    return Observed(tuple(frames), problems)


def asked(*, nnrp: Json | None = None, operation: str = "chat.completions.create", **body: Any) -> Asked:
    """A stream for the model `m`, unless `body` says otherwise."""
    request = {"body": {"model": "m", "stream": True, **body}, **({"nnrp": nnrp} if nnrp else {})}
    case = Case.model_validate_json(json.dumps(CASE | {"operation": operation, "request": request}))
    return Asked(case, EXTENSIONS)
