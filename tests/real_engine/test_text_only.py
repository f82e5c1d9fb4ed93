# SPDX-License-Identifier: MIT
"""A model that takes text only says so when it is given an image."""

from __future__ import annotations

import pytest

from tests.real_engine.backend import RealBackend
from tests.real_engine.bodies import refused_over_grpc, refused_over_nnrp
from tests.real_engine.test_vision import RED, body, data_url, encoded, options

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_over_nnrp(backend: RealBackend) -> None:
    error = await refused_over_nnrp(backend, **body(data_url(RED)))
    assert error["type"] == "invalid_request_error"
    assert error["code"] == "unsupported_operation"
    assert error["message"] == "messages.0.content.0: the loaded model takes text only, no image_url"


async def test_over_grpc(backend: RealBackend) -> None:
    status, details = await refused_over_grpc(backend, options(encoded(RED)))
    assert (status, details) == ("UNIMPLEMENTED", "Images: the loaded model takes text only")
