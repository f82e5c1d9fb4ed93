# SPDX-License-Identifier: MIT
"""The native parsers of a model are built once at load: one that refuses its tokenizer fails the load, by name."""

from __future__ import annotations

from typing import Any

import pytest

from chatdelta import InvalidRequest
from tests.parity.runs import Bench
from tests.vllm_engine.scripted import chat, token_ids
from vllm_engine.parser_pair import refuse_unusable, taking_tools
from vllm_engine.spec import EngineSpec


class Old:
    """As tool parsers were up to vLLM 0.18."""

    def __init__(self, tokenizer: Any) -> None:
        self.built_with = (tokenizer,)


class New:
    def __init__(self, tokenizer: Any, tools: Any = None) -> None:
        self.built_with = (tokenizer, tools)


class Anything:
    def __init__(self, *args: Any) -> None:
        self.built_with = args


@pytest.mark.parametrize(
    ("parser", "built_with"), [(Old, ("tokenizer",)), (New, ("tokenizer", "tools")), (Anything, ("tokenizer", "tools"))]
)
def test_a_parser_is_built_with_the_tools_if_it_takes_them(parser: Any, built_with: tuple[str, ...]) -> None:
    made = taking_tools(parser)("tokenizer", "tools")
    assert type(made).__mro__[-2] is parser
    assert made.built_with == built_with


def test_an_error_of_a_constructor_is_not_taken_for_a_missing_argument() -> None:
    class Broken:
        def __init__(self, tokenizer: Any, tools: Any = None) -> None:
            raise TypeError("inside")

    with pytest.raises(TypeError, match="inside"):
        taking_tools(Broken)("tokenizer", "tools")


class Refuses:
    def __init__(self, tokenizer: Any, *_: Any, **__: Any) -> None:
        raise RuntimeError(f"no <tag> in {tokenizer}")


class Silent:
    def __init__(self, tokenizer: Any, *_: Any, **__: Any) -> None:
        raise KeyError


class Pair:
    """As vLLM's unified parser: a class that names those of its halves."""

    reasoning_parser_cls: type | None = None
    tool_parser_cls: type | None = None

    def __init__(self, tokenizer: Any, tools: Any, **_: Any) -> None: ...


SPEC = EngineSpec("m", tool_parser="one", reasoning_parser="other")


@pytest.mark.parametrize(
    ("halves", "message", "param"),
    [
        (
            {"tool_parser_cls": Refuses},
            "tool parser 'one' cannot be used with this model: no <tag> in X",
            "tool parser",
        ),
        (
            {"reasoning_parser_cls": Refuses, "tool_parser_cls": New},
            "reasoning parser 'other' cannot be used with this model: no <tag> in X",
            "reasoning parser",
        ),
        ({"tool_parser_cls": Silent}, "tool parser 'one' cannot be used with this model: KeyError", "tool parser"),
        (
            {"__init__": Refuses.__init__},
            "parsers 'one and other' cannot be used with this model: no <tag> in X",
            "parsers",
        ),
    ],
)
def test_what_cannot_be_built_is_named(halves: dict[str, Any], message: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_unusable(type("Made", (Pair,), halves), SPEC, "X", None)
    assert (str(caught.value), caught.value.param) == (message, param)


def test_what_can_be_built_passes() -> None:
    refuse_unusable(type("Made", (Pair,), {"tool_parser_cls": New}), SPEC, "X", None)


@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("parsers", "kind"),
    [({"tool_parser": "deepseek_v3"}, "tool parser"), ({"reasoning_parser": "mistral"}, "reasoning parser")],
)
def test_vllms_own_parsers_say_what_the_tokenizer_lacks(
    bench: Bench, parsers: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And before the engine is started."""
    from vllm.v1.engine.async_llm import AsyncLLM

    from vllm_engine.bindings import select_binding
    from vllm_engine.installation import find_installation

    class Args:
        def create_engine_config(self, _context: Any) -> Any:
            return bench.client.vllm_config

    binding = select_binding(find_installation(), allow_untested=True)
    monkeypatch.delattr(AsyncLLM, "from_vllm_config")
    (name,) = parsers.values()
    with pytest.raises(InvalidRequest, match=f"^{kind} '{name}' cannot be used with this model: .*token") as caught:
        binding.build(EngineSpec("tiny", ("tiny",), **parsers), Args(), ())
    assert caught.value.param == kind


@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.asyncio
async def test_a_parser_without_tools_reads_calls(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.tool_parsers import ToolParserManager

    from vllm_engine.oracle.serving import scripted_engine

    native: Any = ToolParserManager.get_tool_parser("hermes")

    class OldHermes(native):  # type: ignore[misc]  # known at run time only
        def __init__(self, tokenizer: Any) -> None:
            super().__init__(tokenizer)

    monkeypatch.setitem(ToolParserManager.tool_parsers, "old_hermes", OldHermes)
    engine = scripted_engine(bench.client, EngineSpec("tiny", ("tiny",), tool_parser="old_hermes"))
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    bench.play(token_ids(bench, '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'), (1,))
    deltas = [delta async for delta in engine.generate(chat(tools=[tool]))]
    calls = [call for delta in deltas for call in delta.tool_calls]
    assert "".join(call.name or "" for call in calls) == "f"
    assert "".join(call.arguments for call in calls) == '{"x": 1}'
