# SPDX-License-Identifier: MIT
"""Core's own search for tool calls in text: JSON objects, and `<function=name>` tags.

Of core's many tag formats only those around `<function=` are here. A Hermes call is JSON in tags, so it is found by
its JSON; so is everything else that a JSON answer may hold, which is how an answer becomes a call that nobody made.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.localai_core.shown import Call

Object = dict[str, Any]
DECODER = json.JSONDecoder()
FUNCTION = re.compile(r"<function=([A-Za-z0-9_.\-]+)>\s*(.*?)\s*</function>", re.DOTALL)
OPENING = re.compile(r"<function=([A-Za-z0-9_.\-]+)>")
TAGGED_CALL = re.compile(
    r"<tool_call>\s*\{.*?\}\s*</tool_call>|(?:<tool_call>\s*)?<function=[^>]+>.*?</function>(?:\s*</tool_call>)?",
    re.DOTALL,
)
PARAMETER = re.compile(r"<parameter=([^>]+)>(.*?)</parameter>", re.DOTALL)


def calls_in(text: str) -> list[Call]:
    """The calls of a whole answer: objects with a name and arguments, then tags. No call has an id."""
    calls = []
    for found in json_objects(text):
        if isinstance(found.get("name"), str) and "arguments" in found:
            calls.append(Call("", found["name"], _arguments(found["arguments"])))
    return calls + [call for call in tagged_calls(text) if call not in calls]


def calls_so_far(text: str) -> list[Call]:
    """The calls that core streams before an answer has ended.

    Tags first: of those the name alone is shown. Else objects, up to the first without a name.
    """
    if names := tag_names(text):
        return [Call("", name, "") for name in names]
    calls = []
    for found in json_objects(text, is_partial=True):
        call = named_call(found)
        if call is None:
            break
        calls.append(call)
    return calls


def named_call(found: Object) -> Call | None:
    """The call that an object is taken for if it merely has a name; arguments that are missing are `{}`."""
    name = found.get("name")
    return Call("", name, _arguments(found.get("arguments", {}))) if isinstance(name, str) and name else None


def tag_names(text: str) -> list[str]:
    names: list[str] = OPENING.findall(text)
    return names


def without_tagged_calls(text: str) -> str:
    """The text around the calls, its parts joined by a blank."""
    return " ".join(part.strip() for part in TAGGED_CALL.split(text) if part.strip())


def tagged_calls(text: str) -> list[Call]:
    """`<function=name>` with a JSON object or `<parameter=key>` tags inside."""
    calls = []
    for name, inner in FUNCTION.findall(text):
        if parameters := PARAMETER.findall(inner):
            arguments: Any = {key: _value(value.strip()) for key, value in parameters}
        else:
            arguments = _value(inner or "{}")
        calls.append(Call("", name, _arguments(arguments)))
    return calls


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def json_objects(text: str, *, is_partial: bool = False) -> list[Object]:
    """Objects that follow each other from the start on; else those that stand anywhere in the text.

    `is_partial`: an object that is not closed yet counts with the members it has.
    """
    found: list[Object] = []
    position = 0
    while rest := text[position:].lstrip():
        position = len(text) - len(rest)
        if rest[0] not in "{[":
            return _objects_anywhere(text, is_partial=is_partial)
        try:
            value, position = DECODER.raw_decode(text, position)
        except ValueError:
            healed = heal(rest) if is_partial else None
            if healed is None:
                return _objects_anywhere(text, is_partial=is_partial)
            value, position = healed, len(text)
        found += [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict) and item]
    return found or _objects_anywhere(text, is_partial=is_partial)


def _objects_anywhere(text: str, *, is_partial: bool) -> list[Object]:
    """One that the text ends in ends the search, and in a text so far it takes the ones before it with it."""
    found: list[Object] = []
    position = text.find("{")
    while position >= 0:
        try:
            value, end = DECODER.raw_decode(text, position)
        except ValueError:
            if heal(text[position:]) is not None:
                return [] if is_partial else found
            end = position + 1
        else:
            found.append(value)
        position = text.find("{", end)
    return found


def heal(text: str) -> Any:
    """The value of JSON that was cut, without the member it was cut in; None where brackets do not match."""
    closers: list[str] = []
    is_string = is_escaped = False
    for character in text:
        if is_string:
            is_string = is_escaped or character != '"'
            is_escaped = character == "\\" and not is_escaped
        elif character == '"':
            is_string = True
        elif character in "{[":
            closers.append("}" if character == "{" else "]")
        elif character in "}]" and (not closers or closers.pop() != character):
            return None
    if not closers:
        return None
    closing = "".join(reversed(closers))
    upto_colon = text[: text.rfind(":") + 1]
    in_array = (text + '"',) if closers[-1] == "]" else ()
    for candidate in (text, text + '"": 1', text + '": 1', *in_array, upto_colon + '""'):
        try:
            value = json.loads(candidate + closing)
        except ValueError:
            continue
        if isinstance(value, dict):
            value.pop("", None)
        return value
    return None
