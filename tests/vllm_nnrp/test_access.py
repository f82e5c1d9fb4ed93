# SPDX-License-Identifier: MIT
"""Who may call which RPC: the bearer token on every one of the contract, the model's identity on those that have it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import grpc
import pytest

from chatdelta import Engine, ErrorCode
from chatdelta.testing import ScriptedEngine, text_script
from localai_proto import backend_pb2 as pb
from tests.vllm_nnrp.doors import IDENTITY, Door, chat, open_door, status_of
from vllm_engine import EngineSpec
from vllm_nnrp.grpc_door.errors import STATUS

TOKEN = "s3cret"
RIGHT = [("authorization", f"Bearer {TOKEN}")]
REFUSED: list[Any] = [
    pytest.param(None, id="no token"),
    pytest.param([("authorization", "Bearer wrong")], id="wrong token"),
    pytest.param([("authorization", TOKEN)], id="no scheme"),
    pytest.param([("authorization", f"bearer {TOKEN}")], id="another scheme"),
    pytest.param([("authorization", "Bearer ")], id="empty token"),
    pytest.param([("authorization", f"Bearer {TOKEN} ")], id="one character more"),
    pytest.param([*RIGHT, *RIGHT], id="the right header twice"),
    pytest.param([("authorization", "Bearer wrong"), *RIGHT], id="a wrong header before the right one"),
    pytest.param([("x-authorization", f"Bearer {TOKEN}")], id="another header"),
    pytest.param([("authorization-bin", f"Bearer {TOKEN}".encode())], id="a binary header"),
]
METHODS = {method.name: method for method in pb.DESCRIPTOR.services_by_name["Backend"].methods}
# What would do something if it came through; for all others the empty message.
REQUESTS: dict[str, Any] = {
    "LoadModel": pb.ModelOptions(Model="org/other"),
    "Predict": chat(),
    "PredictStream": chat(),
    "TokenizeString": chat(),
    "Embedding": pb.PredictOptions(Embeddings="hello"),
    "Rerank": pb.RerankRequest(query="q", documents=["d"]),
    "Score": pb.ScoreRequest(prompt="p", candidates=["c"]),
    "Detokenize": pb.DetokenizeRequest(tokens=[1]),
}
# RPCs whose request says which model it means: localai-contract §1.5.
GUARDED = ("Predict", "PredictStream", "Embedding", "TokenizeString", "Rerank", "Score")


def request_of(name: str) -> Any:
    request = getattr(pb, METHODS[name].input_type.name)()
    if name in REQUESTS:
        request.CopyFrom(REQUESTS[name])
    return request


def call(stub: Any, name: str, request: Any, **options: Any) -> Any:
    """Start the RPC in the way of its kind. A stream of requests stays empty.

    A client of grpc.aio that writes into a stream which the server has ended calls that INTERNAL, whatever the server
    said.
    """
    method = getattr(stub, name)
    return method(**options) if METHODS[name].client_streaming else method(request, **options)


def kind(name: str) -> str:
    method = METHODS[name]
    return f"{'stream' if method.client_streaming else 'unary'}-{'stream' if method.server_streaming else 'unary'}"


def test_the_contract_has_these_kinds_of_rpc() -> None:
    assert {kind(name) for name in METHODS} == {"unary-unary", "unary-stream", "stream-stream"}


class NoSecondLoad:
    """Opens the one engine it was given, and lists what it was asked for."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine(text_script("a"))
        self.specs: list[EngineSpec] = []

    async def __call__(self, spec: EngineSpec) -> Engine:
        self.specs.append(spec)
        return self.engine

    def assert_untouched(self, door: Door) -> None:
        assert [spec.model for spec in self.specs] == [IDENTITY]
        assert self.engine.requests == []
        assert not self.engine.stopped
        assert door.loader.identity == IDENTITY
        # A request for another model has its record; of one without the right token nothing is known.
        assert {record.error_kind for record in door.observations} <= {ErrorCode.UNSUPPORTED_MODEL}


@pytest.mark.asyncio
@pytest.mark.parametrize("metadata", REFUSED)
async def test_without_the_right_token_every_rpc_is_refused_before_anything_is_done(metadata: Any) -> None:
    opened = NoSecondLoad()
    async with open_door(token=TOKEN, open_engine=opened) as door:
        for name in METHODS:
            code, text = await status_of(call(door.stub, name, request_of(name), metadata=metadata))
            assert (code, text) == (grpc.StatusCode.UNAUTHENTICATED, "a valid bearer token is required"), name
        opened.assert_untouched(door)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "with_token"),
    [
        ("Predict", grpc.StatusCode.INVALID_ARGUMENT),
        ("LoadModel", grpc.StatusCode.INVALID_ARGUMENT),
        ("NoSuchMethod", grpc.StatusCode.UNIMPLEMENTED),
    ],
)
async def test_what_is_no_message_or_no_method_is_told_only_to_those_with_the_token(
    method: str, with_token: grpc.StatusCode
) -> None:
    async with open_door(token=TOKEN) as door:
        raw: Any = door.channel.unary_unary(f"/backend.Backend/{method}")
        for garbage in (b"\xff\xff", b"\n\x05ab", b"\n\x02\xc3("):  # a wrong tag, a cut string, one that is not UTF-8
            assert (await status_of(raw(garbage)))[0] is grpc.StatusCode.UNAUTHENTICATED
            assert (await status_of(raw(garbage, metadata=RIGHT)))[0] is with_token


@pytest.mark.asyncio
@pytest.mark.parametrize("name", METHODS)
async def test_with_the_right_token_every_rpc_comes_through(name: str) -> None:
    async with open_door(text_script("a"), token=TOKEN) as door:
        started = call(door.stub, name, request_of(name), metadata=RIGHT)
        with suppress(grpc.aio.AioRpcError):
            if METHODS[name].server_streaming:
                assert [reply async for reply in started]
        assert await started.code() is not grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.asyncio
async def test_without_a_configured_token_nobody_is_asked() -> None:
    async with open_door(text_script("a")) as door:
        assert (await door.stub.Predict(chat(), metadata=[("authorization", "Bearer x")])).message == b"a"


# Identity


def test_every_rpc_with_an_identity_is_guarded_but_those_that_are_not_served() -> None:
    with_identity = {name for name, method in METHODS.items() if "ModelIdentity" in method.input_type.fields_by_name}
    assert with_identity == {*GUARDED, "TokenClassify"}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", GUARDED)
async def test_another_identity_is_refused_in_cores_words_before_anything_is_done(name: str) -> None:
    opened = NoSecondLoad()
    async with open_door(open_engine=opened) as door:
        request = request_of(name)
        request.ModelIdentity = "org/other"
        code, text = await status_of(call(door.stub, name, request))
        assert (code, "model identity mismatch" in text) == (grpc.StatusCode.NOT_FOUND, True)
        assert "org/" not in text  # neither name is the other side's business
        opened.assert_untouched(door)


@pytest.mark.asyncio
@pytest.mark.parametrize("identity", ["", IDENTITY])
async def test_the_own_identity_or_none_is_served(identity: str) -> None:
    async with open_door(text_script("a")) as door:
        assert (await door.stub.Predict(chat(ModelIdentity=identity))).message == b"a"


@pytest.mark.asyncio
async def test_identity_is_that_of_the_last_successful_load() -> None:
    async with open_door(text_script("a"), is_loaded=False) as door:

        async def answers(name: str) -> grpc.StatusCode:
            code: grpc.StatusCode = await door.stub.Predict(chat(ModelIdentity=name)).code()
            return code

        for name, other in (("org/a", "org/b"), ("org/b", "org/a")):
            assert (await door.stub.LoadModel(pb.ModelOptions(Model=name))).success
            assert (await answers(name), await answers(other)) == (grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND)
        assert not (await door.stub.LoadModel(pb.ModelOptions(Model="/no/such/model"))).success
        assert await answers("org/b") is grpc.StatusCode.OK


def test_every_error_has_a_status_and_none_is_unavailable() -> None:
    assert set(STATUS) == set(ErrorCode)
    assert not {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN} & set(STATUS.values())
