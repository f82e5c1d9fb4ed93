# SPDX-License-Identifier: MIT
"""The bearer token, on every kind of RPC, and the table from errors to statuses."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from chatdelta import ErrorCode
from chatdelta.testing import text_script
from localai_proto import backend_pb2 as pb
from tests.vllm_nnrp.doors import chat, open_door, status_of
from vllm_nnrp.grpc_door.errors import STATUS

REFUSED: list[Any] = [
    pytest.param(None, id="no token"),
    pytest.param([("authorization", "Bearer wrong")], id="wrong token"),
    pytest.param([("authorization", "s3cret")], id="no scheme"),
    pytest.param([("authorization", "Bearer ")], id="empty token"),
    pytest.param([("authorization", "Bearer s3cret"), ("authorization", "Bearer s3cret")], id="two tokens"),
    pytest.param([("x-authorization", "Bearer s3cret")], id="another header"),
]
CALLS = {
    "Health": pb.HealthMessage(),
    "Status": pb.HealthMessage(),
    "Free": pb.HealthMessage(),
    "LoadModel": pb.ModelOptions(Model="org/other"),
    "Predict": chat(),
    "PredictStream": chat(),
    "TokenizeString": chat(),
    "TTSStream": pb.TTSRequest(),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("metadata", REFUSED)
async def test_without_the_right_token_every_rpc_is_refused_and_nothing_happens(metadata: Any) -> None:
    async with open_door(text_script("a"), token="s3cret") as door:
        for name, request in CALLS.items():
            code, _ = await status_of(getattr(door.stub, name)(request, metadata=metadata))
            assert code is grpc.StatusCode.UNAUTHENTICATED, name
        assert door.engine.requests == []
        assert not door.engine.stopped
        assert door.loader.identity == "org/model"


@pytest.mark.asyncio
async def test_with_the_token_every_rpc_is_served() -> None:
    metadata = [("authorization", "Bearer s3cret")]
    async with open_door(text_script("a"), token="s3cret") as door:
        assert (await door.stub.Health(pb.HealthMessage(), metadata=metadata)).message == b"OK"
        assert (await door.stub.Predict(chat(), metadata=metadata)).message == b"a"
        replies = [reply.message async for reply in door.stub.PredictStream(chat(), metadata=metadata)]
        assert replies == [b"a", b""]


@pytest.mark.asyncio
async def test_without_a_configured_token_nobody_is_asked() -> None:
    async with open_door(text_script("a")) as door:
        assert (await door.stub.Predict(chat(), metadata=[("authorization", "Bearer x")])).message == b"a"


def test_every_error_has_a_status_and_none_is_unavailable() -> None:
    assert set(STATUS) == set(ErrorCode)
    assert not {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN} & set(STATUS.values())
