# SPDX-License-Identifier: MIT
"""The rules for an answer as a whole: the streamed pieces make up the completed body, which keeps to the request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from vllm_nnrp.conformance.event_rules import RULES as EVENT_RULES
from vllm_nnrp.conformance.event_rules import Asked, Rule
from vllm_nnrp.conformance.models import Json, Manifest
from vllm_nnrp.conformance.observed import Observed

CHAT = "chat.completions.create"
CAPABILITIES = "capabilities.get"
FINISH_REASONS = ("stop", "length", "tool_calls", "content_filter")


def completed_body(asked: Asked, observed: Observed) -> Iterator[str]:
    """An OpenAI chat completion of the model asked for, with the choices asked for, each with a finish reason."""
    body = observed.completed
    if body is None or asked.case.operation != CHAT:
        return
    if body.get("object") != "chat.completion":
        yield "the body is no chat.completion"
    if body.get("model") != asked.body.get("model"):
        yield f"the body names the model {body.get('model')!r}, not {asked.body.get('model')!r}"
    if [choice.get("index") for choice in observed.choices] != list(range(asked.choices)):
        yield f"the body's choices are not 0 to {asked.choices - 1}"
    for choice in observed.choices:
        if choice.get("finish_reason") not in FINISH_REASONS:
            yield f"choice {choice.get('index')} has the finish reason {choice.get('finish_reason')!r}"
        if _message(choice).get("role") != "assistant":
            yield f"choice {choice.get('index')} is no message of the assistant"


def text_order(asked: Asked, observed: Observed) -> Iterator[str]:
    """The text deltas of each choice, joined in the order of arrival, are its content; likewise the reasoning."""
    if not asked.is_stream or observed.completed is None:
        return
    for kind, name in (("response.output_text.delta", "content"), ("response.reasoning_text.delta", "reasoning")):
        for choice in observed.choices:
            index = choice.get("index")
            joined = "".join(str(event.get("delta")) for event in observed.of(kind) if event.get("index") == index)
            if joined != (_message(choice).get(name) or ""):
                yield f"the {kind} events of choice {index}, joined, are not its {name}"
        known = [choice.get("index") for choice in observed.choices]
        if any(event.get("index") not in known for event in observed.of(kind)):
            yield f"{kind} of a choice that the body does not have"


def streamed_calls(asked: Asked, observed: Observed) -> Iterator[str]:
    """The calls that were started are the body's, with the same ids, names and arguments."""
    if not asked.is_stream or observed.completed is None:
        return
    arguments: dict[str, str] = {}
    names: dict[str, Any] = {}
    for event in observed.of("response.tool_call.started", "response.tool_call.delta"):
        call_id = str(event.get("call_id"))
        names.setdefault(call_id, event.get("name"))
        arguments[call_id] = arguments.get(call_id, "") + str(event.get("arguments_delta", ""))
    streamed = [(call_id, names[call_id], text) for call_id, text in arguments.items()]
    in_body = [_called(call) for choice in observed.choices for call in _list(_message(choice).get("tool_calls"))]
    if sorted(map(repr, streamed)) != sorted(map(repr, in_body)):
        yield "the streamed tool calls are not the body's"


def usage_in_body(asked: Asked, observed: Observed) -> Iterator[str]:
    """The body has OpenAI's counts, and a response.usage event says the same."""
    body = observed.completed
    if body is None or asked.case.operation != CHAT:
        return
    usage = body.get("usage")
    counts = [usage.get(name) if isinstance(usage, dict) else None for name in _BODY_COUNTS]
    if not all(isinstance(count, int) and count >= 0 for count in counts) or counts[0] + counts[1] != counts[2]:  # type: ignore[operator]
        yield f"the body's usage has no {', '.join(_BODY_COUNTS)} that add up"
        return
    if counts[0] == 0 or counts[1] == 0:
        yield "an answered request has counted no tokens"
    if events := observed.of("response.usage"):
        last = events[-1].get("usage")
        if not isinstance(last, dict) or [last.get(name) for name in _EVENT_COUNTS] != counts:
            yield "response.usage and the body's usage differ"


_BODY_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_EVENT_COUNTS = ("input_tokens", "output_tokens", "total_tokens")


def limits_kept(asked: Asked, observed: Observed) -> Iterator[str]:
    """Nothing of a stop string is shown, and no more tokens than allowed."""
    stop = asked.body.get("stop") or ()
    for text in (stop,) if isinstance(stop, str) else stop:
        for choice in observed.choices:
            if text in str(_message(choice).get("content") or ""):
                yield f"the stop string {text!r} is in the answer"
    limit = asked.body.get("max_tokens")
    usage = (observed.completed or {}).get("usage")
    if isinstance(limit, int) and isinstance(usage, dict):
        count = usage.get("completion_tokens")
        if isinstance(count, int) and count > limit * asked.choices:
            yield f"{count} tokens were generated, and {limit} allowed"


def structured(asked: Asked, observed: Observed) -> Iterator[str]:
    """With a JSON schema for the answer every choice is an object with its required fields and allowed values."""
    schema = _answer_schema(asked.body)
    if schema is None:
        return
    for choice in observed.choices:
        try:
            answer = json.loads(str(_message(choice).get("content")))
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            yield f"choice {choice.get('index')} is no JSON object"
            continue
        for name in schema.get("required", ()):
            allowed = schema["properties"][name].get("enum")
            if name not in answer or (allowed is not None and answer[name] not in allowed):
                yield f"choice {choice.get('index')}: {name} is missing or none of {allowed}"


def _answer_schema(body: Json) -> Json | None:
    form = body.get("response_format")
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return None
    schema: Json = form["json_schema"]["schema"]
    return schema


def capability_document(asked: Asked, observed: Observed) -> Iterator[str]:
    """A manifest's fields and the models, and nothing less than what the manifest of this run claims."""
    body = observed.completed
    if body is None or asked.case.operation != CAPABILITIES:
        return
    models = body.get("models")
    ids = [model.get("id") for model in models if isinstance(model, dict)] if isinstance(models, list) else []
    if not ids or not all(isinstance(name, str) and name for name in ids):
        yield "the document names no models"
    try:
        manifest = manifest_of(body, "target")
    except ValidationError as exc:
        finding = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        yield f"{'.'.join(map(str, finding['loc']))}: {finding['msg']}"
        return
    if not any(operation.name == CHAT for operation in manifest.operations):
        yield f"the document has no operation {CHAT}"
    for name in sorted(asked.extensions - {extension.name for extension in manifest.extensions}):
        yield f"the manifest claims the extension {name}, the document does not"


def manifest_of(document: Json, adapter: str) -> Manifest:
    """A capability document as a manifest. Raises ValidationError."""
    fields = {name: value for name, value in document.items() if name != "models"}
    return Manifest.model_validate_json(json.dumps({**fields, "adapter": adapter}))


def _message(choice: Json) -> Json:
    return _object(choice.get("message"))


def _called(call: Any) -> tuple[Any, Any, Any]:
    """Id, name and arguments of a call in a body."""
    function = _object(_object(call).get("function"))
    return _object(call).get("id"), function.get("name"), function.get("arguments")


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


RULES: Mapping[str, Rule] = {
    **EVENT_RULES,
    "completed body": completed_body,
    "order of text": text_order,
    "streamed calls": streamed_calls,
    "usage in the body": usage_in_body,
    "limits": limits_kept,
    "structured output": structured,
    "capability document": capability_document,
}


def broken_rules(asked: Asked, observed: Observed) -> list[str]:
    """`rule: what is broken`, for each finding."""
    return [f"{name}: {finding}" for name, rule in RULES.items() for finding in rule(asked, observed)]
