# SPDX-License-Identifier: MIT
"""How large a gRPC message may be, either way, and that one which is too large hurts nobody."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import grpc
import pytest

from chatdelta.testing import SCRIPTED_INFO, text_script
from localai_proto import backend_pb2 as pb
from localai_proto import backend_pb2_grpc
from tests.vllm_nnrp.doors import LOOPBACK, chat, open_door, status_of
from vllm_nnrp.grpc_door import open_grpc

MIB = 1024 * 1024
PNG = b"\x89PNG\r\n\x1a\n"
WITH_IMAGES = replace(SCRIPTED_INFO, multimodal=True)


def image_of(text_bytes: int) -> str:
    """An image whose base64 has that length."""
    return base64.b64encode(PNG + bytes(text_bytes // 4 * 3 - len(PNG))).decode()


@pytest.mark.asyncio
async def test_49_mib_with_an_image_pass_and_51_do_not() -> None:
    async with open_door(text_script("a"), info=WITH_IMAGES) as door:
        image = image_of(49 * MIB)
        assert (await door.stub.Predict(chat(Images=[image]))).message == b"a"
        (request,) = door.engine.requests
        (part, _text) = request.body["messages"][0]["content"]
        assert part["image_url"]["url"] == f"data:image/png;base64,{image}"
        for rpc in ("Predict", "PredictStream"):
            code, _ = await status_of(getattr(door.stub, rpc)(chat(Images=[image_of(51 * MIB)])))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(door.engine.requests) == 1
        assert (await door.stub.Predict(chat())).message == b"a"


@pytest.mark.asyncio
async def test_a_reply_may_be_as_large() -> None:
    def answer(request: Any) -> Any:
        return text_script("a" * (request.body["max_tokens"] * MIB // 2))  # it is in the reply twice: message and delta

    takes_all = [("grpc.max_receive_message_length", -1)]  # by default a client takes 4 MiB
    async with (
        open_door(answer) as door,
        grpc.aio.insecure_channel(str(door.server.address), options=takes_all) as channel,
    ):
        stub: Any = backend_pb2_grpc.BackendStub(channel)
        reply = await stub.Predict(chat(Tokens=49))
        assert 49 * MIB <= reply.ByteSize() < 50 * MIB
        code, _ = await status_of(stub.Predict(chat(Tokens=51)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.Predict(chat(Tokens=1))).message


class Healthy(backend_pb2_grpc.BackendServicer):
    """Just enough of a servicer."""

    async def Health(self, request: pb.HealthMessage, context: object) -> pb.Reply:
        return pb.Reply(message=b"OK")


@pytest.mark.asyncio
async def test_the_limit_can_be_set() -> None:
    door = await open_grpc(LOOPBACK, Healthy(), token=None, max_message_bytes=1000)
    async with grpc.aio.insecure_channel(str(door.address)) as channel:
        call: Any = channel.unary_unary("/backend.Backend/Health")
        assert await call(b"\xfa\x3f\xe0\x07" + bytes(992))  # an unknown field of 992 bytes
        assert (await status_of(call(b"\xfa\x3f\xe0\x07" + bytes(999))))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    await door.close(0)
