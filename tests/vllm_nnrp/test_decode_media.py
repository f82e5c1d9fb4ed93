# SPDX-License-Identifier: MIT
"""Images, Videos and Audios to content parts: a row per form, and a name for everything that is broken."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from chatdelta import InvalidRequest, UnsupportedOperation
from localai_proto import backend_pb2 as pb
from vllm_nnrp.grpc_door.decode import decode_predict

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n...").decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0...").decode()
WEBP = base64.b64encode(b"RIFF\x00\x00\x00\x00WEBPVP8 ").decode()
WAV = base64.b64encode(b"RIFF\x00\x00\x00\x00WAVEfmt ").decode()
FLAC = base64.b64encode(b"fLaC....").decode()
MP4 = base64.b64encode(b"\x00\x00\x00\x18ftypmp42").decode()
WEBM = base64.b64encode(b"\x1a\x45\xdf\xa3....").decode()
UNKNOWN = base64.b64encode(b"????").decode()
USER = pb.Message(role="user", content="What is this?")
TEXT = {"type": "text", "text": "What is this?"}


def messages(*given: pb.Message, **media: Any) -> list[dict[str, Any]]:
    options = pb.PredictOptions(Messages=given or (USER,), **media)
    request = decode_predict(options, request_id="r", model="m", tool_parser=False, multimodal=True)
    return list(request.body["messages"])


def part(kind: str, url: str) -> dict[str, Any]:
    return {"type": kind, kind: {"url": url}}


FORMS: list[tuple[str, dict[str, list[str]], list[dict[str, Any]]]] = [
    ("png", {"Images": [PNG]}, [part("image_url", f"data:image/png;base64,{PNG}")]),
    ("jpeg", {"Images": [JPEG]}, [part("image_url", f"data:image/jpeg;base64,{JPEG}")]),
    ("webp", {"Images": [WEBP]}, [part("image_url", f"data:image/webp;base64,{WEBP}")]),
    ("an image of an unknown form", {"Images": [UNKNOWN]}, [part("image_url", f"data:image/png;base64,{UNKNOWN}")]),
    (
        "sound in the field of images stays an image",
        {"Images": [WAV]},
        [part("image_url", f"data:image/png;base64,{WAV}")],
    ),
    (
        "a data URL stays as it is",
        {"Images": [f"data:image/x;base64,{PNG}"]},
        [part("image_url", f"data:image/x;base64,{PNG}")],
    ),
    ("mp4", {"Videos": [MP4]}, [part("video_url", f"data:video/mp4;base64,{MP4}")]),
    ("webm", {"Videos": [WEBM]}, [part("video_url", f"data:video/webm;base64,{WEBM}")]),
    ("wav", {"Audios": [WAV]}, [part("audio_url", f"data:audio/wav;base64,{WAV}")]),
    ("flac", {"Audios": [FLAC]}, [part("audio_url", f"data:audio/flac;base64,{FLAC}")]),
    (
        "in order, images first",
        {"Audios": [WAV], "Images": [PNG, JPEG, PNG]},
        [
            part("image_url", f"data:image/png;base64,{PNG}"),
            part("image_url", f"data:image/jpeg;base64,{JPEG}"),
            part("image_url", f"data:image/png;base64,{PNG}"),
            part("audio_url", f"data:audio/wav;base64,{WAV}"),
        ],
    ),
]


@pytest.mark.parametrize(("media", "parts"), [row[1:] for row in FORMS], ids=[row[0] for row in FORMS])
def test_media_comes_before_the_text(media: dict[str, list[str]], parts: list[dict[str, Any]]) -> None:
    assert messages(**media) == [{"role": "user", "content": [*parts, TEXT]}]


def test_media_goes_to_the_last_user_message() -> None:
    history = (
        pb.Message(role="system", content="s"),
        pb.Message(role="user", content="first"),
        pb.Message(role="assistant", content="a"),
        USER,
        pb.Message(role="assistant", content="prefill"),
    )
    contents = [message["content"] for message in messages(*history, Images=[PNG])]
    assert contents == ["s", "first", "a", [part("image_url", f"data:image/png;base64,{PNG}"), TEXT], "prefill"]


def test_media_alone_has_no_text_part() -> None:
    assert messages(pb.Message(role="user"), Images=[PNG])[0]["content"] == [
        part("image_url", f"data:image/png;base64,{PNG}")
    ]


def test_without_media_the_content_stays_text() -> None:
    assert messages() == [{"role": "user", "content": "What is this?"}]


@pytest.mark.parametrize("field", ["Images", "Videos", "Audios"])
@pytest.mark.parametrize(
    ("items", "where", "words"),
    [
        ([PNG, "not base64!"], "[1]", "is not valid base64"),
        ([PNG[:-1]], "[0]", "is not valid base64"),
        (["https://example.com/a.png"], "[0]", "is not valid base64"),
        (["file:///etc/passwd"], "[0]", "is not valid base64"),
        (["data:image/png;base64,?"], "[0]", "is not valid base64"),
        (["data:image/svg+xml,<svg/>"], "[0]", "must be base64"),
        ([PNG, ""], "[1]", "is empty"),
        (["data:image/png;base64,"], "[0]", "is empty"),
    ],
)
def test_what_is_broken_is_named(field: str, items: list[str], where: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        messages(**{field: items})
    assert caught.value.param == field + where
    assert str(caught.value).startswith(field + where)
    assert len(str(caught.value)) < 80  # never the content


def test_media_without_a_user_message_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="Videos: there is no user message"):
        messages(pb.Message(role="system", content="s"), Videos=[MP4])


@pytest.mark.parametrize("field", ["Images", "Videos", "Audios"])
def test_a_model_of_text_refuses_media_by_name(field: str) -> None:
    media: Any = {field: [PNG]}
    options = pb.PredictOptions(Messages=[USER], **media)
    with pytest.raises(UnsupportedOperation, match=f"{field}: the loaded model takes text only") as caught:
        decode_predict(options, request_id="r", model="m", tool_parser=False)
    assert caught.value.param == field


@pytest.mark.parametrize("field", ["Images", "Videos", "Audios"])
def test_a_raw_prompt_refuses_media_by_name(field: str) -> None:
    media: Any = {field: [PNG]}
    options = pb.PredictOptions(Prompt="x", Messages=[USER], **media)
    with pytest.raises(UnsupportedOperation, match=f"{field}: media goes with Messages"):
        decode_predict(options, request_id="r", model="m", tool_parser=False, multimodal=True)
