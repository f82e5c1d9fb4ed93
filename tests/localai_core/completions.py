# SPDX-License-Identifier: MIT
"""The endpoints that show `message` as it is: /v1/completions, edits, and Ollama's chat and generate."""

from __future__ import annotations

from dataclasses import replace

from localai_proto import backend_pb2 as pb
from tests.localai_core.ask import Ask, predict_options, predict_options_with_prompt
from tests.localai_core.attempts import Backend, compute
from tests.localai_core.replies import Step, Usage
from tests.localai_core.shown import Shown


def completion(backend: Backend, ask: Ask) -> Shown:
    """/v1/completions. Core forgets the counts there, and the finish reason is always "stop"."""
    outcome = compute(backend, predict_options(ask))
    response = outcome.response
    return Shown(response.text, usage=Usage(), logprobs=response.logprobs, attempts=outcome.attempts)


def completion_stream(backend: Backend, ask: Ask) -> Shown:
    """The same streamed. The counts are those of the last reply that had a chunk."""
    return _stream(backend, predict_options(ask))


def ollama(backend: Backend, ask: Ask) -> Shown:
    """Ollama's chat and generate, which never send tools."""
    outcome = compute(backend, _without_tools(ask))
    return Shown(outcome.response.text, usage=outcome.response.usage, attempts=outcome.attempts)


def ollama_stream(backend: Backend, ask: Ask) -> Shown:
    return _stream(backend, _without_tools(ask))


def _without_tools(ask: Ask) -> pb.PredictOptions:
    return predict_options_with_prompt(replace(ask, tools=(), tool_choice=None))


def _stream(backend: Backend, options: pb.PredictOptions) -> Shown:
    shown = Shown()

    def step(step: Step) -> None:
        if step.text:
            shown.show_text(step.text)

    outcome = compute(backend, options, on_step=step)
    shown.usage, shown.attempts = outcome.response.usage, outcome.attempts
    return shown
