# SPDX-License-Identifier: MIT
"""`vllm-nnrp demo`: a real model answers the same question over gRPC and over NNRP, every event shown."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from vllm_nnrp.client.child import BackendFailed, Doors, running_backend
from vllm_nnrp.client.conversation import Answer, Conversation, Sampling
from vllm_nnrp.client.render import ERROR_STYLE, NOTE_STYLE, event_line, printable
from vllm_nnrp.client.timing import Clock, StopWatch
from vllm_nnrp.client.transport import ClientError, Target, grpc_target, nnrp_target, open_client

QUESTION = "What is the capital of France?"
RIGHT_ANSWER = "The capital of France is Paris."
MAX_TOKENS = 64
OK, FAILED, INTERRUPTED = 0, 1, 130


def build_model(console: Console | None = None) -> Path | None:
    """The demo model's folder, built with a progress bar if need be; None if that failed, and why was said."""
    console = console or Console(stderr=True, highlight=False)
    try:
        from vllm_nnrp.models.demo import build_demo_model

        return build_demo_model()
    except ImportError as exc:
        say(
            console,
            f"building the demo model needs torch, transformers and gguf: run `make install` ({exc})",
            ERROR_STYLE,
        )
    except (OSError, RuntimeError, ValueError) as exc:
        say(console, f"the demo model could not be built: {exc}", ERROR_STYLE)
    return None


def run_demo(
    console: Console | None = None,
    *,
    build: Callable[[], Path | None] = build_model,
    command: Sequence[str] | None = None,
) -> int:
    """0 only if both doors gave the right answer and the backend ended cleanly. `command`: another backend."""
    console = console or Console(highlight=False)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # the child must not outlive us
    try:
        model = build()
        return FAILED if model is None else _show(console, str(model), command)
    except KeyboardInterrupt:
        say(console, "interrupted; nothing is left running", ERROR_STYLE)
        return INTERRUPTED
    except BackendFailed as exc:
        say(console, f"\n{exc}", ERROR_STYLE)
        say(console, exc.log.rstrip(), NOTE_STYLE)
        return FAILED
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(console: Console, model: str, command: Sequence[str] | None) -> int:
    say(console, f"demo model  {model}")
    started_s = time.monotonic()
    with running_backend(("--model", model), command=command) as child:
        with console.status("starting vLLM …") as status:

            def tick() -> None:
                status.update(f"starting vLLM … {time.monotonic() - started_s:.0f} s")

            doors = child.wait_ready(tick)
        say(console, f"backend     ready after {time.monotonic() - started_s:.1f} s")
        wrong = [name for name, target in _targets(doors, os.environ) if not _ask(console, name, target, model)]
        stopping_s = time.monotonic()
    say(console, f"\nbackend     stopped cleanly in {time.monotonic() - stopping_s:.1f} s")
    if wrong:
        say(console, f"wrong answer over {' and '.join(wrong)}", ERROR_STYLE)
        return FAILED
    say(console, "both doors gave the right answer", "bold green")
    return OK


def _targets(doors: Doors, environ: Mapping[str, str]) -> tuple[tuple[str, Target], ...]:
    return ("gRPC", grpc_target(doors.grpc, environ)), ("NNRP", nnrp_target(doors.nnrp, environ))


def _ask(console: Console, name: str, target: Target, model: str) -> bool:
    """Ask over one door and show its stream; whether the answer is the right one."""
    say(console, f"\n{name}  {target}", "bold")
    say(console, f"Q: {QUESTION}")
    try:
        answer, watch = asyncio.run(stream_events(console, target, model))
    except ClientError as exc:
        say(console, str(exc), ERROR_STYLE)
        return False
    is_right = answer.text == RIGHT_ANSWER
    say(console, f"A: {answer.text}", "green" if is_right else ERROR_STYLE)
    say(console, watch.summary())
    return is_right


async def stream_events(
    console: Console, target: Target, model: str, clock: Clock = time.monotonic
) -> tuple[Answer, StopWatch]:
    """One line per event, with the time since the question. Raises ClientError if nobody is there."""
    conversation = Conversation(model=model, sampling=Sampling(max_tokens=MAX_TOKENS))
    conversation.say(QUESTION)
    answer = Answer()
    async with open_client(target) as client:
        watch = StopWatch(clock)
        async for event in client.ask(conversation.question(), asyncio.Event()):
            answer.feed(event)
            watch.feed(event)
            say(console, f"  {watch.elapsed_s:7.3f} s  {event_line(event)}", NOTE_STYLE)
    return answer, watch


def say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(printable(text), style), soft_wrap=True)
