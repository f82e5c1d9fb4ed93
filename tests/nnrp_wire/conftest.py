# SPDX-License-Identifier: MIT
"""Tests with `carrier` or `serving` run on every transport, with `stream_carrier` on all but quic.

With `slow_carrier` they run on tcp, and on all others in `make faults`.
"""

from __future__ import annotations

import pytest

from tests.nnrp_wire.carriers import CARRIERS, STREAMS, TCP, Carrier
from tests.nnrp_wire.sdk_serving import Serving, serving_on


@pytest.fixture(params=CARRIERS, ids=lambda carrier: carrier.name)
def carrier(request: pytest.FixtureRequest) -> Carrier:
    chosen: Carrier = request.param
    return chosen


@pytest.fixture(params=STREAMS, ids=lambda carrier: carrier.name)
def stream_carrier(request: pytest.FixtureRequest) -> Carrier:
    chosen: Carrier = request.param
    return chosen


@pytest.fixture(
    params=[pytest.param(each, marks=[] if each is TCP else pytest.mark.faults, id=each.name) for each in CARRIERS]
)
def slow_carrier(request: pytest.FixtureRequest) -> Carrier:
    chosen: Carrier = request.param
    return chosen


@pytest.fixture
def serving(carrier: Carrier) -> Serving:
    return serving_on(carrier)
