# SPDX-License-Identifier: MIT
"""The same conversation through either door, and the answer in one common form."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nnrp.core import MessageType

from localai_proto import backend_pb2 as pb
from tests.localai_core.ask import marshalled
from tests.real_engine.backend import MODEL, RealBackend
from tests.support.sdk_client import SdkClient, SdkEvent, SdkSession
from vllm_nnrp.models.memorised_corpus import Conversation

STREAM: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
Piece = tuple[str, ...]  # ("text", …), ("reasoning", …), ("call", index, name), ("arguments", index, …)


@dataclass
class Answer:
    """One streamed answer: its pieces in order of arrival, and its counts."""

    pieces: list[Piece] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    call_ids: list[str] = field(default_factory=list)

    def joined(self, kind: str) -> str:
        return "".join(piece[1] for piece in self.pieces if piece[0] == kind)

    def count(self, kind: str) -> int:
        return sum(piece[0] == kind for piece in self.pieces)

    def calls(self) -> list[tuple[str, Any]]:
        """(name, decoded arguments) of each call, in order."""
        names = [(piece[1], piece[2]) for piece in self.pieces if piece[0] == "call"]
        return [
            (name, json.loads("".join(p[2] for p in self.pieces if p[0] == "arguments" and p[1] == index)))
            for index, name in names
        ]


# gRPC


def predict_options(conversation: Conversation, **extra: Any) -> pb.PredictOptions:
    """What LocalAI sends for this conversation at temperature 0."""
    messages = [
        pb.Message(
            role=message["role"],
            content=message.get("content") or "",
            tool_call_id=message.get("tool_call_id", ""),
            tool_calls=json.dumps(message["tool_calls"]) if "tool_calls" in message else "",
        )
        for message in conversation.messages
    ]
    metadata = {} if conversation.enable_thinking else {"enable_thinking": "false"}
    return pb.PredictOptions(
        Messages=messages,
        UseTokenizerTemplate=True,
        Tools=json.dumps([marshalled(tool) for tool in conversation.tools]) if conversation.tools else "",
        ToolChoice='"auto"' if conversation.tools else "",
        Metadata=metadata,
        TopP=1,
        **extra,
    )


async def ask_grpc(backend: RealBackend, conversation: Conversation) -> Answer:
    answer = Answer()
    async for reply in backend.stub.PredictStream(predict_options(conversation)):
        for delta in reply.chat_deltas:
            if delta.reasoning_content:
                answer.pieces.append(("reasoning", delta.reasoning_content))
            if delta.content:
                answer.pieces.append(("text", delta.content))
            for call in delta.tool_calls:
                if call.name:
                    answer.pieces.append(("call", str(call.index), call.name))
                    answer.call_ids.append(call.id)
                if call.arguments:
                    answer.pieces.append(("arguments", str(call.index), call.arguments))
        answer.prompt_tokens, answer.completion_tokens = reply.prompt_tokens, reply.tokens
    return answer


# NNRP


def envelope(conversation: Conversation, **body: Any) -> bytes:
    return json.dumps(
        {
            "schema_version": "openai-compatible/1",
            "operation": "chat.completions.create",
            "body": conversation.request_body(MODEL, **{**STREAM, **body}),
        }
    ).encode()


def read_answer(events: list[SdkEvent]) -> Answer:
    """The events of one operation; asserts that it succeeded and that its terminal body says the same."""
    answer = Answer()
    *partials, terminal = events
    for event in partials:
        assert event.message_type is MessageType.PARTIAL_RESULT
        fields = json.loads(event.payload)
        match fields["type"]:
            case "response.output_text.delta":
                answer.pieces.append(("text", fields["delta"]))
            case "response.reasoning_text.delta":
                answer.pieces.append(("reasoning", fields["delta"]))
            case "response.tool_call.started":
                answer.pieces.append(("call", str(fields["index"]), fields["name"]))
                answer.call_ids.append(fields["call_id"])
            case "response.tool_call.delta":
                answer.pieces.append(("arguments", str(fields["index"]), fields["arguments_delta"]))
            case "response.usage":
                answer.prompt_tokens = fields["usage"]["input_tokens"]
                answer.completion_tokens = fields["usage"]["output_tokens"]
    assert terminal.message_type is MessageType.RESULT_PUSH
    completed = json.loads(terminal.payload)
    assert completed["type"] == "response.completed"
    message = completed["body"]["choices"][0]["message"]
    assert (message["content"] or "") == answer.joined("text")
    assert message.get("reasoning", "") == answer.joined("reasoning")
    assert len(message.get("tool_calls", [])) == answer.count("call")
    return answer


async def ask_nnrp(backend: RealBackend, conversation: Conversation) -> Answer:
    def scenario() -> Answer:
        with SdkClient.connect(backend.nnrp.port) as client:
            session = client.open_session()
            return read_answer(session.collect(session.submit(envelope(conversation)), timeout_s=60))

    return await asyncio.to_thread(scenario)


def drain(session: SdkSession, *, quiet_s: float = 0.3) -> list[SdkEvent]:
    """Every frame until none has come for `quiet_s`."""
    frames: list[SdkEvent] = []
    last_s = time.monotonic()
    while time.monotonic() - last_s < quiet_s:
        frame = session.poll()
        if frame is not None:
            frames.append(frame)
            last_s = time.monotonic()
    return frames
