# SPDX-License-Identifier: MIT
"""Images, on a tiny vision model with random weights: both doors hand the engine the same; what is wrong is named."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import socket
import struct
import threading
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import pytest_asyncio

from chatdelta import GenerationRequest
from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.real_engine.backend import RealBackend, real_backend
from tests.real_engine.bodies import completed_over_nnrp, refused_over_grpc, refused_over_nnrp
from vllm_engine.bindings import Rendered, Runtime

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAX_IMAGES = 2
TOKENS = 8
TEXT = "What do you see?"
FETCH_BOUND_S = 8.0  # vLLM's five seconds for an image, and a busy machine


def png(red: int, green: int, blue: int, *, size: int = 8) -> bytes:
    """A square of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + bytes((red, green, blue)) * size
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    pixels = zlib.compress(row * size)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


RED, BLUE = png(255, 0, 0), png(0, 0, 255)


@dataclass
class Recorder:
    """A Runtime that remembers what it handed to the engine."""

    runtime: Runtime
    rendered: list[Rendered] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)

    async def render(self, request: GenerationRequest) -> Rendered:
        self.rendered.append(await self.runtime.render(request))
        return self.rendered[-1]

    @property
    def last(self) -> tuple[list[int], list[str]]:
        """(prompt token ids, media hashes) of the latest request."""
        prompt = self.rendered[-1].prompt
        return list(prompt["prompt_token_ids"]), list(prompt["mm_hashes"]["image"])


@dataclass(frozen=True)
class Vision:
    backend: RealBackend
    recorder: Recorder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def vision() -> AsyncIterator[Vision]:
    from vllm_nnrp.models.vision import build_vision_model

    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    limits = {"limit_mm_per_prompt": {"image": MAX_IMAGES}, "allowed_media_domains": ["127.0.0.1"]}
    async with real_backend(build_vision_model(), tool_parser=None, reasoning_parser=None, **limits) as backend:
        engine: Any = backend.host.engine()
        engine._runtime = Recorder(engine._runtime)
        yield Vision(backend, engine._runtime)


def encoded(image: bytes) -> str:
    return base64.b64encode(image).decode()


def data_url(image: bytes) -> str:
    return f"data:image/png;base64,{encoded(image)}"


def body(*urls: Any, **fields: Any) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = [*parts, {"type": "text", "text": TEXT}]
    sampling = {"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True}
    return {"messages": [{"role": "user", "content": content}], **sampling, **fields}


def options(*images: str, **fields: Any) -> pb.PredictOptions:
    messages = [pb.Message(role="user", content=TEXT)]
    return pb.PredictOptions(
        Messages=messages, Images=images, UseTokenizerTemplate=True, TopP=1, Tokens=TOKENS, IgnoreEOS=True, **fields
    )


@pytest.mark.parametrize("images", [(RED,), (RED, BLUE), (BLUE, RED)], ids=["one", "two", "two the other way round"])
async def test_both_doors_hand_the_engine_the_same(vision: Vision, images: tuple[bytes, ...]) -> None:
    from vllm_nnrp.models.vision import TOKENS_PER_IMAGE

    choice = await completed_over_nnrp(vision.backend, **body(*map(data_url, images)))
    token_ids, hashes = vision.recorder.last
    request = options(*map(encoded, images))
    reply = await vision.backend.stub.Predict(request)
    assert vision.recorder.last == (token_ids, hashes)
    counted = await vision.backend.stub.TokenizeString(request)
    assert list(counted.tokens) == token_ids
    assert len(set(hashes)) == len(images)
    image_token = vision.backend.host.engine().llm.model_config.hf_config.image_token_index  # type: ignore[attr-defined]
    assert token_ids.count(image_token) == TOKENS_PER_IMAGE * len(images)
    assert reply.prompt_tokens == len(token_ids)
    assert reply.tokens == TOKENS
    assert choice["finish_reason"] == "length"
    (delta,) = reply.chat_deltas
    assert delta.content == choice["message"]["content"] != ""


async def test_two_images_stay_in_order(vision: Vision) -> None:
    hashes = {}
    for name, images in {"red": [RED], "blue": [BLUE], "both": [RED, BLUE], "turned": [BLUE, RED]}.items():
        await completed_over_nnrp(vision.backend, **body(*map(data_url, images)))
        hashes[name] = vision.recorder.last[1]
    assert hashes["both"] == hashes["red"] + hashes["blue"]
    assert hashes["turned"] == hashes["blue"] + hashes["red"]


async def test_the_answer_depends_on_the_image(vision: Vision) -> None:
    answers = set()
    for images in ([], [RED], [BLUE], [RED, BLUE], [BLUE, RED]):
        choice = await completed_over_nnrp(vision.backend, **body(*map(data_url, images), logprobs=True))
        answers.add(tuple(round(token["logprob"], 4) for token in choice["logprobs"]["content"]))
    assert len(answers) == 5


NOT_AN_IMAGE = b"this is not an image" * 1000
TRUNCATED = png(1, 2, 3, size=64)[:70]


def huge() -> str:
    """The URL of an image of more pixels than PIL opens; made when it is needed, out of 588 MB."""
    return data_url(png(1, 2, 3, size=14_000))


# what is wrong: (the images' URLs or what makes one, words of the refusal, its param)
REFUSED: dict[str, tuple[list[Any], str, str]] = {
    "too many images": ([data_url(RED)] * 3, "At most 2 image(s) may be provided", "image"),
    "not an image": ([data_url(NOT_AN_IMAGE)], "image: Failed to load image: cannot identify image file", "image"),
    "half an image": ([data_url(TRUNCATED)], "image: Failed to load image: image file is truncated", "image"),
    "too many pixels": ([huge], "image: it cannot be fetched or read", "image"),
    "one good and one broken": ([data_url(RED), data_url(NOT_AN_IMAGE)], "image: Failed to load image", "image"),
    "not base64": (["data:image/png;base64,@@@@"], "image: Non-base64 digit found", "image"),
    "cut base64": ([data_url(RED)[:-3]], "image: Non-base64 digit found", "image"),
    "a data URL without base64": (["data:image/png,abc"], "image: a data URL must be", "image"),
    "a data URL without data": (["data:image/png;base64"], "image: a data URL must be", "image"),
    "bare base64": ([encoded(RED) * 100], "image: The URL must be either a HTTP, data or file URL.", "image"),
    "an URL that is a number": ([5], "image_url.url: Input should be a valid string", "image_url.url"),
    "a file": (["file:///etc/passwd"], "image: local files are not served here", "image"),
    "another scheme": (["ftp://127.0.0.1/image.png"], "image: The URL must be either", "image"),
    "a host that is not allowed": (["http://169.254.169.254/latest/meta-data"], "image: The URL must be from", "image"),
    "no host": (["http:///image.png"], "image: The URL must be from", "image"),
}


@pytest.mark.parametrize("wrong", REFUSED)
async def test_a_wrong_image_over_nnrp_is_refused_by_name(
    vision: Vision, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made, message, param = REFUSED[wrong]
    urls = [url() if callable(url) else url for url in made]
    error = await refused_over_nnrp(vision.backend, **body(*urls))
    assert error["type"] == "invalid_request_error"
    assert error["code"] in ("invalid_request", "invalid_body")
    assert message in error["message"]
    assert error["param"] == param
    assert len(error["message"]) < 200
    assert not any(url[-50:] in caplog.text for url in urls if is_long(url))
    await still_answers(vision)


def is_long(url: Any) -> bool:
    return isinstance(url, str) and len(url) > 100


REFUSED_OVER_GRPC: dict[str, tuple[list[str], str]] = {
    "too many images": ([encoded(RED)] * 3, "At most 2 image(s) may be provided"),
    "not an image": ([encoded(NOT_AN_IMAGE)], "image: Failed to load image: cannot identify image file"),
    "half an image": ([encoded(TRUNCATED)], "image: Failed to load image: image file is truncated"),
    "not base64": ([encoded(RED), "@@@@"], "Images[1] is not valid base64"),
    "an address": (["http://127.0.0.1/image.png"], "Images[0] is not valid base64"),
    "a file": (["file:///etc/passwd"], "Images[0] is not valid base64"),
}


@pytest.mark.parametrize("wrong", REFUSED_OVER_GRPC)
async def test_a_wrong_image_over_grpc_is_refused_by_name(vision: Vision, wrong: str) -> None:
    images, message = REFUSED_OVER_GRPC[wrong]
    status, details = await refused_over_grpc(vision.backend, options(*images))
    assert status == "INVALID_ARGUMENT"
    assert message in details
    assert len(details) < 200
    await still_answers(vision)


async def test_other_media_than_the_models_are_refused_by_name(vision: Vision) -> None:
    audio = encoded(b"RIFF\0\0\0\0WAVE")
    parts = {
        "audio": {"type": "input_audio", "input_audio": {"data": audio, "format": "wav"}},
        "video": {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
    }
    for name, part in parts.items():
        error = await refused_over_nnrp(vision.backend, messages=[{"role": "user", "content": [part]}])
        assert error["type"] == "invalid_request_error"
        assert f"At most 0 {name}(s)" in error["message"]
    status, details = await refused_over_grpc(vision.backend, options(Audios=[audio]))
    assert (status, details.partition(".")[0]) == (
        "INVALID_ARGUMENT",
        "At most 0 audio(s) may be provided in one prompt",
    )


@pytest.mark.parametrize("text", ["<image>", "<image><image> and <image>"])
@pytest.mark.parametrize("images", [(), (RED,)], ids=["no image", "one image"])
async def test_the_models_own_image_token_in_a_text_does_no_harm(
    vision: Vision, images: tuple[bytes, ...], text: str
) -> None:
    request = options(*map(encoded, images))
    request.Messages[0].content = text
    await vision.backend.stub.Predict(request)
    await still_answers(vision)


async def test_a_request_cannot_set_what_the_images_are_scaled_to(vision: Vision) -> None:
    size = {"height": 56, "width": 56}
    kwargs = {"size": size, "crop_size": size}  # vLLM's engine would die of it
    error = await refused_over_nnrp(vision.backend, **body(data_url(RED), mm_processor_kwargs=kwargs))
    assert (error["code"], error["param"]) == ("invalid_body", "mm_processor_kwargs")
    await still_answers(vision)


@pytest.mark.parametrize("before", ["counted", "refused"])
async def test_an_image_that_was_counted_or_refused_before_is_still_answered(vision: Vision, before: str) -> None:
    """With its sender cache vLLM's renderer notes each image as sent: one that never gets there would fail later."""
    image = png(1, 1, 1) if before == "counted" else png(2, 2, 2)
    if before == "counted":
        await vision.backend.stub.TokenizeString(options(encoded(image)))
    else:
        error = await refused_over_nnrp(vision.backend, **body(data_url(image), temperature=-1))
        assert error["param"] == "temperature"
    await completed_over_nnrp(vision.backend, **body(data_url(image)))


async def test_a_clients_id_for_an_image_is_not_taken_for_its_content(vision: Vision) -> None:
    """vLLM caches what it has seen under a part's `uuid`: the second client would get an answer about the first's."""

    async def asked(image: bytes, **more: Any) -> tuple[str, list[str]]:
        request = body(data_url(image), logprobs=True)
        request["messages"][0]["content"][0].update(more)
        choice = await completed_over_nnrp(vision.backend, **request)
        return json.dumps(choice["logprobs"]), vision.recorder.last[1]

    red, blue = await asked(RED), await asked(BLUE)
    assert red != blue
    assert await asked(RED, uuid="mine") == red
    assert await asked(BLUE, uuid="mine") == blue


async def test_large_images_do_not_hold_up_the_doors(vision: Vision, figure: Figure) -> None:
    images = [encoded(png(shade, 0, 0, size=6000)) for shade in (10, 20)]  # 36 million pixels each
    started_s, worst_s = time.monotonic(), 0.0
    answer = asyncio.ensure_future(vision.backend.stub.Predict(options(*images)))
    while not answer.done():
        asked_s = time.monotonic()
        await vision.backend.stub.Health(pb.HealthMessage())
        worst_s = max(worst_s, time.monotonic() - asked_s)
        await asyncio.wait([answer], timeout=0.02)
    assert (await answer).tokens == TOKENS
    took_s = time.monotonic() - started_s
    figure(f"two images of 36 million pixels: answered in {took_s:.1f} s; Health meanwhile at worst {worst_s:.2f} s")
    assert worst_s < max(1.0, took_s / 2)


class OneImage(BaseHTTPRequestHandler):
    """/red.png is RED, everything else is not there."""

    def do_GET(self) -> None:
        found = self.path == "/red.png"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(RED if found else b"")

    def log_message(self, *_args: object) -> None: ...


@pytest.fixture
def web() -> Iterator[str]:
    """The address of a web server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), OneImage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_an_address_of_an_allowed_host_is_fetched(vision: Vision, web: str) -> None:
    await completed_over_nnrp(vision.backend, **body(f"{web}/red.png"))
    fetched = vision.recorder.last
    await completed_over_nnrp(vision.backend, **body(data_url(RED)))
    assert vision.recorder.last == fetched
    error = await refused_over_nnrp(vision.backend, **body(f"{web}/blue.png"))
    assert (error["code"], error["message"]) == (
        "invalid_request",
        "image: Failed to fetch media from URL: HTTP 404 error",
    )


async def test_an_address_where_nobody_answers_is_refused_soon(vision: Vision, figure: Figure) -> None:
    with socket.socket() as bound:  # it does not listen
        bound.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{bound.getsockname()[1]}/red.png"
        started_s = time.monotonic()
        error = await refused_over_nnrp(vision.backend, **body(nowhere))
    figure(f"an address where nobody answers: refused after {time.monotonic() - started_s:.1f} s")
    assert time.monotonic() - started_s < FETCH_BOUND_S
    assert (error["code"], error["message"]) == ("invalid_request", "image: it cannot be fetched or read")
    await still_answers(vision)


async def test_without_allowed_hosts_no_address_is_fetched(vision: Vision, web: str) -> None:
    config = vision.backend.host.engine().llm.model_config  # type: ignore[attr-defined]
    hosts, config.allowed_media_domains = config.allowed_media_domains, None
    try:
        error = await refused_over_nnrp(vision.backend, **body(f"{web}/red.png"))
        assert "image: addresses are not fetched here" in error["message"]
        config.allowed_media_domains = ["*"]
        await completed_over_nnrp(vision.backend, **body(f"{web}/red.png"))
    finally:
        config.allowed_media_domains = hosts


async def still_answers(vision: Vision) -> None:
    reply = await vision.backend.stub.Predict(options(encoded(RED)))
    assert reply.tokens == TOKENS
