# SPDX-License-Identifier: MIT
"""The clients that measure: they count every token once, see each end, and send a cancel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chatdelta import BackendFailure, EngineDelta, FinishReason, GenerationRequest
from chatdelta.testing import Gap, Step, failing_script
from localai_proto import backend_pb2 as pb
from tests.nnrp_wire.recording_transport import RecordingTransport
from tests.support.waiting import until
from tests.vllm_nnrp_client.both_doors import MODEL, both_doors
from vllm_nnrp.bench.asking import Ask, BenchFailed, Door, Stream, all_ended, usage_in
from vllm_nnrp.bench.control import Control, ControlFailed, open_control
from vllm_nnrp.bench.grpc_door import GrpcConnection, GrpcDoor
from vllm_nnrp.bench.http2 import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, frame
from vllm_nnrp.bench.http_door import HttpConnection
from vllm_nnrp.bench.nnrp_door import NnrpDoor

WORD = " the"
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}\n\n'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def content(text: str) -> bytes:
    return chunk(b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % text.encode())


SSE = HEAD + content(WORD) + content(WORD * 2) + chunk(USAGE) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@pytest.mark.parametrize("cut", range(1, len(SSE)))
def test_wherever_an_sse_answer_is_cut_its_tokens_are_counted_once(cut: int) -> None:
    connection, stream = HttpConnection(WORD.encode()), Stream(1, 0.0)
    connection.take(stream)
    connection.data_received(SSE[:cut])
    connection.data_received(SSE[cut:])
    assert (stream.tokens, stream.usage_tokens, stream.failure) == (3, 3, "")
    assert stream.ended.is_set()


def test_an_http_error_is_a_failure() -> None:
    connection, stream = HttpConnection(WORD.encode()), Stream(1, 0.0)
    connection.take(stream)
    connection.data_received(b"HTTP/1.1 400 Bad Request\r\n\r\nno such model")
    assert "400 Bad Request" in stream.failure


def message(tokens: int) -> bytes:
    reply = pb.Reply(message=WORD.encode(), tokens=tokens).SerializeToString()
    return b"\0" + len(reply).to_bytes(4, "big") + reply


def connected() -> tuple[GrpcConnection, Stream, RecordingTransport]:
    connection, transport = GrpcConnection("here:1"), RecordingTransport()
    connection.connection_made(transport)
    return connection, connection.ask(Ask(1, 3)), transport


OK_TRAILERS, FAILED_TRAILERS = b"\x00\x0bgrpc-status\x010", b"\x00\x0bgrpc-status\x0213"
GRPC = (
    frame(HEADERS, END_HEADERS, 1, b"\x88")
    + frame(DATA, 0, 1, message(1) + message(2)[:4])
    + frame(DATA, 0, 1, message(2)[4:])
    + frame(DATA, 0, 1, message(3))
    + frame(HEADERS, END_HEADERS | END_STREAM, 1, OK_TRAILERS)
)


@pytest.mark.parametrize("cut", range(1, len(GRPC)))
def test_wherever_a_grpc_answer_is_cut_its_tokens_are_counted_once(cut: int) -> None:
    connection, stream, _ = connected()
    connection.data_received(GRPC[:cut])
    connection.data_received(GRPC[cut:])
    assert (stream.tokens, stream.usage_tokens, stream.failure) == (3, 3, "")
    assert stream.ended.is_set()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (frame(HEADERS, END_HEADERS | END_STREAM, 1, FAILED_TRAILERS), "grpc-status"),
        (frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88"), "trailers"),
        (frame(DATA, END_STREAM, 1, message(1)), "without trailers"),
        (frame(RST_STREAM, 0, 1, b"\0\0\0\x0b"), "reset (11)"),
        (frame(GOAWAY, 0, 0, bytes(8) + b"too_many_pings"), "too_many_pings"),
    ],
)
def test_what_is_no_grpc_answer_is_a_failure(data: bytes, told: str) -> None:
    connection, stream, _ = connected()
    connection.data_received(data)
    assert told in stream.failure


@pytest.mark.parametrize(
    ("text", "tokens"),
    [(b"{}", 0), (b'{"completion_tokens": 7}', 7), (b'{"completion_tokens":1} {"completion_tokens":12}', 12)],
)
def test_the_answers_own_count_is_its_last(text: bytes, tokens: int) -> None:
    assert usage_in(text) == tokens


def words(request: GenerationRequest) -> Iterable[Step]:
    """As many as were asked for, for ever where it is more than ten."""
    limit = request.body["max_tokens"]
    for count in range(1, limit + 1):
        if limit > 10:
            yield Gap(0.01)
        reason = FinishReason.LENGTH if count == limit else None
        yield EngineDelta(content=WORD, prompt_tokens=4, completion_tokens=count, finish_reason=reason)


@asynccontextmanager
async def opened(name: str, streams: int) -> AsyncIterator[tuple[Door, list[str]]]:
    """A door on a scripted engine, and the engine's aborts."""
    async with both_doors(words) as doors:
        door: Door = GrpcDoor(doors.targets["grpc"].address)  # type: ignore[union-attr]
        if name != "grpc":
            door = NnrpDoor(name, doors.urls[0], WORD.encode(), MODEL, each_alone=name == "alone")
        await door.open(streams)
        try:
            yield door, doors.engine.aborted
        finally:
            await door.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["grpc", "nnrp", "alone"])
async def test_every_token_of_every_stream_is_counted(name: str) -> None:
    async with opened(name, 3) as (door, _):
        streams = [door.ask(Ask(seed, seed + 2, tools=False)) for seed in range(3)]
        await all_ended(streams, 10)
    assert [stream.tokens for stream in streams] == [2, 3, 4]
    assert [stream.usage_tokens for stream in streams] == [2, 3, 4]
    assert all(stream.receipts[0][0] >= stream.asked_s for stream in streams)
    assert not any(stream.late for stream in streams)


@pytest.mark.asyncio
async def test_a_large_grpc_request_waits_for_the_servers_windows() -> None:
    async with opened("grpc", 1) as (door, _):
        stream = door.ask(Ask(1, 2, tools=False, padding_bytes=4 << 20))
        await all_ended([stream], 10)
    assert stream.tokens == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["grpc", "nnrp"])
async def test_a_cancel_ends_the_stream_and_reaches_the_engine(name: str) -> None:
    async with opened(name, 1) as (door, aborted):
        stream = door.ask(Ask(1, 1000, tools=False))
        async with asyncio.timeout(10):
            await stream.started.wait()
            door.cancel(stream)
            await stream.ended.wait()
        await until(lambda: len(aborted) == 1)
        assert stream.failure == ""


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["grpc", "nnrp"])
async def test_a_failed_answer_fails_the_measurement(name: str) -> None:
    async with both_doors(lambda _request: failing_script(BackendFailure("lost"))) as doors:
        door: Door = GrpcDoor(doors.targets["grpc"].address)  # type: ignore[union-attr]
        if name == "nnrp":
            door = NnrpDoor(name, doors.urls[0], WORD.encode(), MODEL)
        await door.open(1)
        with pytest.raises(BenchFailed, match="1 of 1 answers failed"):
            await all_ended([door.ask(Ask(1, 2, tools=False))], 10)
        await door.close()


@pytest.mark.asyncio
async def test_a_command_answers_or_raises_with_the_servers_words(tmp_path: Path) -> None:
    async def double(number: int) -> int:
        return 2 * number

    async def fail() -> None:
        raise LookupError("nothing there")

    server = await open_control(tmp_path / "control", {"double": double, "fail": fail})
    async with server:
        control = await Control.connect(tmp_path / "control")
        assert await control("double", number=4) == 8
        with pytest.raises(ControlFailed, match="fail: LookupError: nothing there"):
            await control("fail")
        assert await control("double", number=5) == 10
        await control.close()
