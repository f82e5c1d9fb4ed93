# SPDX-License-Identifier: MIT
"""What the user sees: on a terminal, and in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from vllm_nnrp.client.events import (
    Cancelled,
    ClientEvent,
    Done,
    Error,
    Reasoning,
    Text,
    ToolCallArguments,
    ToolCallDone,
    ToolCallError,
    ToolCallStart,
    Usage,
)
from vllm_nnrp.client.render import AnswerView, Screen, event_line, pretty_json, printable
from vllm_nnrp.client.timing import StopWatch

WEATHER: list[ClientEvent] = [
    ToolCallStart(0, "c0", "weather"),
    ToolCallArguments(0, '{"city":'),
    ToolCallArguments(0, ' "Paris"}'),
]
WEATHER_DONE = ToolCallDone(0, "c0", "weather", '{"city": "Paris"}')


class Clock:
    """Half a second passes each time one looks."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.5
        return self.now_s


def piped(*events: ClientEvent) -> tuple[str, str]:
    """stdout and stderr, neither of them a terminal."""
    out, err = io.StringIO(), io.StringIO()
    show(Screen(Console(file=out), Console(file=err)), *events)
    return out.getvalue(), err.getvalue()


def terminal(*events: ClientEvent) -> str:
    """Everything a terminal of 40 columns gets, control codes included."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", width=40, highlight=False, _environ={})
    show(Screen(console, console), *events)
    return file.getvalue()


def show(screen: Screen, *events: ClientEvent) -> None:
    with AnswerView(screen, Clock()) as view:
        for event in events:
            view.show(event)


def test_a_pipe_gets_the_answer_and_nothing_else() -> None:
    out, err = piped(Reasoning("\nhm"), Reasoning("!\n"), Text("\n\nIt is"), Text(" Paris."), Usage(3, 4), Done("stop"))
    assert out == "It is Paris.\n"
    assert err == "hm!\n3 prompt + 4 answer tokens · first token after 0.50 s · 6.0 tokens/s · stop\n"


def test_a_pipe_gets_tool_calls_as_plain_text() -> None:
    out, _ = piped(*WEATHER, WEATHER_DONE, Done("tool_calls"))
    assert out == 'tool call weather (c0)\n{\n  "city": "Paris"\n}\n'


def test_long_lines_are_not_broken() -> None:
    out, _ = piped(Text("word " * 100), Done("stop"))
    assert out == "word " * 100 + "\n"


def test_a_terminal_shows_reasoning_dimmed_and_the_answer_plain() -> None:
    shown = terminal(Reasoning("hm"), Text("Paris"), Done("stop"))
    assert shown.startswith("\x1b[2;3mhm\x1b[0m\nParis\n\x1b[2m")


def test_text_is_shown_as_it_comes() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out), Console(file=io.StringIO()))
    with AnswerView(screen, Clock()) as view:
        view.show(Text("a"))
        assert out.getvalue() == "a"
        view.show(Text("b"))
        assert out.getvalue() == "ab"


def test_a_terminal_shows_a_tool_call_in_a_box() -> None:
    shown = terminal(*WEATHER, WEATHER_DONE, Done("tool_calls"))
    final = shown[shown.rindex("╭") :]
    assert "tool call" in final
    assert "weather" in final
    assert '"city"' in final
    assert "c0" in final
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")  # the cursor is back


@pytest.mark.parametrize("ending", [Cancelled("user_cancelled"), Error("internal", "lost"), None])
def test_a_call_without_an_end_is_said_to_have_none(ending: ClientEvent | None) -> None:
    events = [*WEATHER[:2]] + ([ending] if ending else [])
    out, _ = piped(*events)
    assert out == 'tool call weather (c0)\n{"city":\nfailed: not completed\n'
    assert "failed: not completed" in terminal(*events)


def test_a_failed_call_says_why() -> None:
    out, _ = piped(*WEATHER[:2], ToolCallError(0, "c0", "length", "cut"), Done("length"))
    assert out.endswith("failed: cut (length)\n")


def test_interleaved_calls_end_in_their_own_boxes() -> None:
    out, _ = piped(
        *WEATHER[:2], ToolCallStart(1, "c1", "g"), WEATHER_DONE, ToolCallDone(1, "c1", "g", "{}"), Done("tool_calls")
    )
    assert out == 'tool call weather (c0)\n{\n  "city": "Paris"\n}\ntool call g (c1)\n{}\n'


def test_an_error_shows_its_code_in_red() -> None:
    assert terminal(Error("engine_dead", "the engine has died")) == (
        "\x1b[1;31merror engine_dead: the engine has died\x1b[0m\n"
    )


def test_a_cancelled_answer_is_said_to_be() -> None:
    out, err = piped(Text("half"), Cancelled("user_cancelled"))
    assert (out, err) == ("half\n", "first token after 0.50 s · cancelled\n")
    assert piped(Cancelled("not confirmed"))[1] == "0.50 s · cancelled (not confirmed)\n"


def test_a_model_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2J\x07\r\n\tb\x9b\x7f\ud800") == "a␛[2J␇␍\n\tb\ufffd␡?"
    out, _ = piped(
        Text("[bold]\x1b]0;title\x07"), *WEATHER[:1], ToolCallDone(0, "c", "f\x1b", '{"a\x1b": 1}'), Done("stop")
    )
    assert "\x1b" not in out
    assert "[bold]" in out
    assert "\x1b]0" not in terminal(Text("\x1b]0;title\x07"), Error("\x1b]0", "\x1b]0"))


@pytest.mark.parametrize(
    ("text", "shown"), [('{"a":[1]}', '{\n  "a": [\n    1\n  ]\n}'), ('{"a', '{"a'), ('{"ü": 1}', '{\n  "ü": 1\n}')]
)
def test_json_is_indented_where_it_is_json(text: str, shown: str) -> None:
    assert pretty_json(text) == shown


def test_the_speed_is_that_of_the_tokens_after_the_first() -> None:
    times = iter([10.0, 12.0, 13.0])
    watch = StopWatch(lambda: next(times))
    for event in (Text("a"), Text("b"), Usage(5, 3)):
        watch.feed(event)
    assert watch.summary() == "5 prompt + 3 answer tokens · first token after 2.00 s · 2.0 tokens/s"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Text("a\n"), "text       'a\\n'"),
        (Reasoning("r"), "reasoning  'r'"),
        (WEATHER[0], "call       #0 weather (c0)"),
        (WEATHER[1], "arguments  #0 '{\"city\":'"),
        (WEATHER_DONE, 'call done  #0 weather {"city": "Paris"}'),
        (ToolCallError(0, "c0", "length", "cut"), "call error #0 length: cut"),
        (Usage(3, 4), "usage      prompt 3, completion 4"),
        (Done("stop"), "done       stop"),
        (Error("c", "m"), "error      c: m"),
        (Cancelled("r"), "cancelled  r"),
    ],
)
def test_every_event_fits_in_a_line(event: ClientEvent, line: str) -> None:
    assert event_line(event) == line
