# SPDX-License-Identifier: MIT
"""A native parser that raises in mid-stream, on the path of a real request: runner, engine, vLLM's own output path."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from chatdelta import (
    Completed,
    Observation,
    Outcome,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallCompleted,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallStarted,
    Usage,
)
from chatserving import EngineHost, LogSink, RequestRunner
from tests.parity.runs import Bench
from tests.support.records import Records
from tests.vllm_engine.scripted import chat, token_ids
from vllm_engine import EngineSpec

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.asyncio]

CUE = "bang"
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}},
}
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}


def raising(native: Any, method: str) -> type:
    """A parser of vLLM's that raises once it has seen the cue; as parsers often do, with the text in its words."""

    class Raising(native):  # type: ignore[misc]  # known at run time only
        seen = ""

    def streaming(self: Any, previous: str, current: str, delta: str, *args: Any) -> Any:
        self.seen += delta
        if CUE in self.seen:
            raise RuntimeError(f"cannot read {self.seen}")
        return getattr(super(Raising, self), method)(previous, current, delta, *args)

    setattr(Raising, method, streaming)
    return Raising


@pytest.fixture(scope="module")
def parsers() -> Iterator[None]:
    """Raising parsers, under names that no family has."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    for name in ("hermes", "qwen3_xml"):
        native = ToolParserManager.get_tool_parser(name)
        ToolParserManager.tool_parsers[f"raising_{name}"] = raising(native, "extract_tool_calls_streaming")
    for name in ("deepseek_r1", "qwen3"):
        native = ReasoningParserManager.get_reasoning_parser(name)
        ReasoningParserManager.reasoning_parsers[f"raising_{name}"] = raising(native, "extract_reasoning_streaming")
    yield
    for registry in (ToolParserManager.tool_parsers, ReasoningParserManager.reasoning_parsers):
        for name in [name for name in registry if name.startswith("raising_")]:
            del registry[name]


@dataclass
class Served:
    """What a listener and the observers saw of one request."""

    events: list[StreamEvent]
    terminal: Any
    observation: Observation


async def serve(bench: Bench, says: str, tool_parser: str | None, reasoning_parser: str | None, **body: Any) -> Served:
    from vllm_engine.oracle.serving import scripted_engine

    spec = EngineSpec("tiny", ("tiny",), tool_parser=tool_parser, reasoning_parser=reasoning_parser)
    records, host = Records(), EngineHost()
    events: list[StreamEvent] = []

    async def emit(batch: Sequence[StreamEvent], _usage: Usage, _more_follows: bool) -> None:
        events.extend(batch)

    async def open_engine() -> Any:
        return scripted_engine(bench.client, spec)

    await host.load("raising", open_engine)
    bench.play(token_ids(bench, says), (1,))
    answer = await RequestRunner(host, (records, LogSink())).run(chat(**body), emit, operation="test")
    await host.close()
    (observation,) = records.all
    return Served(events, answer.terminal, observation)


# What the model says; tool and reasoning parser; what is said of it in the end, in the order of the events.
ROWS: dict[str, tuple[str, str | None, str | None, str]] = {
    "in the text": ("One, two, bang, three.", "raising_hermes", None, "One, two, bang, three."),
    "in a call": (
        'Hm. <tool_call>\n{"name": "f", "arguments": {"x": "a bang b"}}\n</tool_call> End.',
        "raising_hermes",
        None,
        'Hm. {"x": "a bang b"}}\n</tool_call> End.',
    ),
    "in a call of an engine-based parser": (
        "Hm. <tool_call>\n<function=f>\n<parameter=x>\na bang b\n</parameter>\n</function>\n</tool_call> End.",
        "raising_qwen3_xml",
        None,
        'Hm. {"x": "a bang b\n</parameter>\n</function>\n</tool_call> End.',
    ),
    "in the reasoning": (
        "<think>One, bang, two.</think>Three.",
        "hermes",
        "raising_deepseek_r1",
        "One, bang, two.</think>Three.",
    ),
    "in the reasoning of an engine-based parser": (
        "<think>One, bang, two.</think>Three.",
        "hermes",
        "raising_qwen3",
        "One, bang, two.</think>Three.",
    ),
}


@pytest.mark.parametrize("where", ROWS)
async def test_the_answer_goes_on_as_plain_text_from_where_a_parser_raised(
    bench: Bench, parsers: None, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    says, tool_parser, reasoning_parser, said = ROWS[where]
    with caplog.at_level(logging.INFO):
        served = await serve(bench, says, tool_parser, reasoning_parser, tools=[TOOL], **THINKING)
    pieces = [piece for event in served.events if (piece := said_by(event))]
    assert "".join(pieces) == said
    assert len(pieces) > 5, "the rest came in one piece"
    assert isinstance(served.terminal, Completed)
    assert served.terminal.body["choices"][0]["finish_reason"] == "stop"
    started = [event for event in served.events if isinstance(event, ToolCallStarted)]
    ended = [event for event in served.events if isinstance(event, ToolCallFailed | ToolCallCompleted)]
    assert [type(event) for event in ended] == [ToolCallFailed] * len(started)
    assert bool(started) is ("call" in where)
    assert (served.observation.outcome, served.observation.parser_failure) == (Outcome.COMPLETED, "RuntimeError")
    _check_log(caplog, served.observation.request_id)


def said_by(event: StreamEvent) -> str:
    match event:
        case TextDelta(text=text) | ReasoningDelta(text=text):
            return text
        case ToolCallDelta(arguments_delta=text):
            return text
    return ""


def _check_log(caplog: pytest.LogCaptureFixture, request_id: str) -> None:
    (error,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert getattr(error, "request_id", None) == request_id
    assert "RuntimeError" in error.getMessage()
    assert "streaming" in error.getMessage(), "where it was raised"
    assert CUE not in caplog.text, "what the model said is in the log"
    (told,) = (record.getMessage() for record in caplog.records if record.name == "vllm_nnrp.operations")
    assert "parser_failure=RuntimeError" in told
