# SPDX-License-Identifier: MIT
"""What a grammar lets a model write: all that it did before, but no endless white space."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatdelta import InvalidRequest
from tests.parity.runs import Bench
from tests.vllm_engine.scripted import answered, chat
from tests.vllm_engine.versions import IS_NEWEST

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.asyncio]

SCHEMA = {
    "type": "object",
    "properties": {"level": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["level", "tags"],
    "additionalProperties": False,
}
VALUE = {"level": 40, "tags": ["a", "b"]}
NESTED = {"a": [{"b": {"c": 1}}]}
LOOP = " \n" * 20
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
# Before 0.26 a forced call is bare JSON, and not the family's markup.
CALL = '<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>' if IS_NEWEST else '[{"name": "f", "parameters": %s}]'


async def grammar(bench: Bench, **fields: Any) -> Any:
    """What xgrammar makes of the request's constraint, as vLLM's engine process does."""
    import xgrammar

    await answered(bench, chat(**fields))
    constraint = bench.client.generate_calls[-1]["sampling_params"].structured_outputs
    return xgrammar.Grammar.from_structural_tag(constraint.structural_tag)


def accepts(grammar: Any, text: str) -> bool:
    from xgrammar.testing import _is_grammar_accept_string

    return bool(_is_grammar_accept_string(grammar, text))


FIELDS: list[tuple[str, dict[str, Any], str]] = [
    (
        "a schema",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
        "%s",
    ),
    ("a schema of vLLM's field", {"structured_outputs": {"json": SCHEMA}}, "%s"),
    ("a schema as text", {"structured_outputs": {"json": json.dumps(SCHEMA)}}, "%s"),
    ("any object", {"response_format": {"type": "json_object"}}, "%s"),
    (
        "a forced call",
        {"tools": [TOOL], "tool_choice": "required"},
        CALL,
    ),
    (
        "a tag of the client's own",
        {
            "structured_outputs": {
                "structural_tag": json.dumps(
                    {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}}
                )
            }
        },
        "%s",
    ),
]


@pytest.mark.parametrize(("fields", "around"), [row[1:] for row in FIELDS], ids=[row[0] for row in FIELDS])
async def test_json_has_room_for_layout_and_no_endless_white_space(
    bench: Bench, fields: dict[str, Any], around: str
) -> None:
    made = await grammar(bench, **fields)
    written = json.dumps(VALUE)
    for text in (written, json.dumps(VALUE, separators=(",", ":")), json.dumps(VALUE, indent=4)):
        assert accepts(made, around % text), text
    assert not accepts(made, around % "{}x")
    for part in ("40", "[", '"level"', '"a"'):
        assert not accepts(made, around % written.replace(part, part + LOOP, 1)), f"after {part}"


async def test_deep_json_can_be_laid_out(bench: Bench) -> None:
    made = await grammar(bench, response_format={"type": "json_object"})
    assert accepts(made, json.dumps(NESTED, indent=4))


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"regex": "a+"}},
        {"structured_outputs": {"choice": ["a", "b"]}},
        {"structured_outputs": {"grammar": 'root ::= "a"'}},
    ],
)
async def test_other_grammars_are_left_alone(bench: Bench, fields: dict[str, Any]) -> None:
    await answered(bench, chat(**fields))
    constraint = bench.client.generate_calls[-1]["sampling_params"].structured_outputs
    assert constraint.structural_tag is None


@pytest.mark.parametrize(
    "constraint",
    [
        {"json": {"type": "integer", "multipleOf": 3}},
        {"json": {"type": "object", "patternProperties": {"^a": {"type": "integer"}}}},
        {"grammar": "root ::= .*"},
    ],
)
async def test_what_only_another_backend_has_is_refused(bench: Bench, constraint: dict[str, Any]) -> None:
    """It would be the backend of every later request, which was checked for the usual one."""
    with pytest.raises(InvalidRequest, match="structured_outputs: needs a grammar backend") as caught:
        await answered(bench, chat(structured_outputs=constraint))
    assert caught.value.param == "structured_outputs"


async def test_the_backend_somebody_chose_is_used(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.client.vllm_config.structured_outputs_config, "backend", "guidance")
    await answered(bench, chat(structured_outputs={"grammar": "root ::= .*"}))
    constraint = bench.client.generate_calls[-1]["sampling_params"].structured_outputs
    assert (constraint.grammar, constraint._backend) == ("root ::= .*", "guidance")


async def test_who_has_switched_white_space_off_keeps_it_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.client.vllm_config.structured_outputs_config, "disable_any_whitespace", True)
    await answered(bench, chat(structured_outputs={"json": SCHEMA}))
    constraint = bench.client.generate_calls[-1]["sampling_params"].structured_outputs
    assert (constraint.json, constraint.structural_tag) == (SCHEMA, None)
