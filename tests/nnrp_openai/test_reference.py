# SPDX-License-Identifier: MIT
"""docs/profile.md is what the code says."""

from __future__ import annotations

from chatdelta.errors import ErrorCode
from nnrp_openai import reference
from nnrp_openai.encoding import EVENTS
from nnrp_openai.envelope import Envelope, NnrpPolicy
from tests.support.reports import ROOT


def test_the_page_is_current() -> None:
    page = (ROOT / "docs/profile.md").read_text()
    assert page == reference.markdown(), "run `python -m nnrp_openai.reference > docs/profile.md`"


def test_the_words_are_about_what_there_is() -> None:
    assert reference.ENVELOPE.keys() == Envelope.model_fields.keys()
    assert reference.POLICY.keys() == NnrpPolicy.model_fields.keys()
    assert len(reference.EVENTS) == len(EVENTS)
    assert reference.ERRORS.keys() == set(ErrorCode)
