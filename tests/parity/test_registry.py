# SPDX-License-Identifier: MIT
"""Each parser of the installed vLLM has entries in the corpus, or lacks what it needs: a new vLLM shows its new."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.parity.corpus import FAMILIES, absent
from tests.parity.corpus.versions import installed

pytestmark = pytest.mark.engine
VLLM = installed()
ABSENT = {name: lacks for name, lacks in absent.TOOL_PARSERS.items() if name not in VLLM.lacks_tool_parsers}


def test_every_tool_parser_is_covered_or_lacks_something() -> None:
    from vllm.tool_parsers import ToolParserManager

    covered = {family.tool_parser for family in FAMILIES} - {None}
    known = (covered | absent.TOOL_PARSERS.keys()) - VLLM.lacks_tool_parsers
    assert known | VLLM.more_tool_parsers == set(ToolParserManager.list_registered())
    assert not covered & VLLM.more_tool_parsers
    assert not covered & absent.TOOL_PARSERS.keys()


def test_every_reasoning_parser_is_covered_or_lacks_something() -> None:
    from vllm.reasoning import ReasoningParserManager

    covered = {family.reasoning_parser for family in FAMILIES} - {None}
    known = (covered | absent.REASONING_PARSERS.keys()) - VLLM.lacks_reasoning_parsers
    assert known == set(ReasoningParserManager.list_registered())
    assert not covered & absent.REASONING_PARSERS.keys()


@pytest.mark.parametrize("module", sorted({*absent.TOOL_PARSERS.values(), *absent.REASONING_PARSERS.values()}))
def test_what_they_lack_is_not_here(module: str) -> None:
    """Where it is, their entries have to be written."""
    assert find_spec(module) is None


def test_cohere_cannot_be_imported() -> None:
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    for name in (name for name, lacks in ABSENT.items() if lacks == absent.COHERE):
        for get in (ToolParserManager.get_tool_parser, ReasoningParserManager.get_reasoning_parser):
            with pytest.raises(ImportError, match=absent.COHERE):
                get(name)


def test_what_is_written_in_rust_cannot_be_asked() -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    for name in (name for name, lacks in ABSENT.items() if lacks == absent.RUST):
        parser = ToolParserManager.get_tool_parser(name)(object())
        with pytest.raises(RuntimeError, match=absent.RUST):
            parser.extract_tool_calls(f"{parser.tool_call_start_token}x", ChatCompletionRequest(messages=[]))
