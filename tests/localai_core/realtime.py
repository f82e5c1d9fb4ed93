# SPDX-License-Identifier: MIT
"""The realtime endpoint: the text is spoken as it comes, so nothing of it can be taken back."""

from __future__ import annotations

from tests.localai_core.ask import Ask, predict_options
from tests.localai_core.attempts import Backend
from tests.localai_core.deltas import calls_of
from tests.localai_core.reasoning import Extractor
from tests.localai_core.replies import Step, read_stream
from tests.localai_core.shown import Shown


def realtime(backend: Backend, ask: Ask) -> Shown:
    """One spoken turn. A reply with deltas is spoken from them, another from its message; nothing is asked again."""
    shown, extractor = Shown(), Extractor()

    def step(step: Step) -> None:
        _, text = extractor.feed(step.content if step.deltas else step.text)
        if text:
            shown.show_text(text)

    response = read_stream(backend.predict_stream(predict_options(ask)), step)
    for call in calls_of(response.deltas):
        shown.show_call(call)
    shown.usage = response.usage
    return shown
